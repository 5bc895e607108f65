/** Odd names for the tiny world's colours, shapes and relations: a crimson orb is a red circle. */
import type { RandomStream } from '../../core/random.js';
import type { Colour, Relation, Shape } from './world.js';

/** Other words for what the world holds. */
export const ODD: {
  readonly colours: Readonly<Record<Colour, readonly string[]>>;
  readonly shapes: Readonly<Record<Shape, readonly string[]>>;
  readonly relations: Readonly<Record<Relation, readonly string[]>>;
} = {
  colours: {
    red: ['crimson', 'scarlet', 'ruby'],
    green: ['emerald', 'jade', 'verdant'],
    blue: ['cobalt', 'azure', 'navy'],
    yellow: ['golden', 'lemon', 'amber'],
    purple: ['violet', 'plum', 'mauve'],
    cyan: ['turquoise', 'teal', 'aqua'],
  },
  shapes: {
    circle: ['orb', 'disc', 'ring'],
    square: ['tile', 'box', 'block'],
    triangle: ['wedge', 'pyramid', 'delta'],
    cross: ['plus', 'crux', 'crucifix'],
  },
  relations: {
    above: ['above', 'over', 'atop'],
    below: ['below', 'beneath', 'under'],
    'left-of': ['left of', 'west of'],
    'right-of': ['right of', 'east of'],
  },
};

/** What each odd word of a colour or a shape means. */
const MEANT: ReadonlyMap<string, string> = new Map(
  [ODD.colours, ODD.shapes].flatMap((kind) =>
    Object.entries<readonly string[]>(kind).flatMap(([plain, odd]) => odd.map((word) => [word, plain] as const)),
  ),
);

/** Replaces colours and shapes by one of their odd names each. */
export function withOddNames(words: string, random: RandomStream): string {
  const names: Readonly<Record<string, readonly string[]>> = { ...ODD.colours, ...ODD.shapes };
  return words
    .split(' ')
    .map((word) => (word in names ? random.pick(names[word]) : word))
    .join(' ');
}

/** Replaces colours and shapes by odd names of any colour and shape. */
export function anyOddNames(words: string, random: RandomStream): string {
  const any = (of: Readonly<Record<string, readonly string[]>>): string => random.pick(Object.values(of).flat());
  return words
    .split(' ')
    .map((word) => (word in ODD.colours ? any(ODD.colours) : word in ODD.shapes ? any(ODD.shapes) : word))
    .join(' ');
}

/** The plain name for an odd word; other words as they are. */
export function plainNameOf(word: string): string {
  return MEANT.get(word) ?? word;
}

/** Every odd name of a colour or a shape. */
export function oddNames(): string[] {
  return [...MEANT.keys()];
}
