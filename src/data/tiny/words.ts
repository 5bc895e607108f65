/**
 * The tiny world in words: captions that name colors, shapes and places oddly ("a crimson orb above a cobalt tile"), and their plain versions ("a
 * red circle above a blue square"). On disk they are JSON lines, as a user's own prompts would be:
 *
 *   <root>/words-<hash>/words/{labelled,train,validation}.jsonl     {"prompt": the odd caption, "expected": the plain one}
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { InternalError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { RandomStream } from '../../core/random.js';
import type { TinyWordSettings } from './settings.js';
import { tinyDataset } from './build.js';
import { COLOURS, RELATIONS, SHAPES, type Relation, type SceneObject, type Color, type Shape } from './world.js';

const PLAIN_RELATIONS: Readonly<Record<Relation, string>> = {
  above: 'above',
  below: 'below',
  'left-of': 'left of',
  'right-of': 'right of',
};

export const WORD_SPLITS = ['labelled', 'train', 'validation'] as const;
export type WordSplit = (typeof WORD_SPLITS)[number];

export interface WordOptions {
  readonly seed: number;
  /** Captions in each split. */
  readonly sizes: Readonly<Record<WordSplit, number>>;
}

/** A caption in odd words, and its plain version. */
export interface Caption {
  readonly prompt: string;
  readonly expected: string;
}

/** The content of a caption: two or three things, and the position of the first relative to the second. */
export interface CaptionScene {
  readonly things: readonly SceneObject[];
  readonly relation: Relation;
}

/** Every word of prompts and answers, in a fixed order, so that a tokenizer can be made from it. */
export function captionVocabulary(): string[] {
  const odd = [ODD.colours, ODD.shapes, ODD.relations].flatMap((words) => Object.values(words).flat());
  const all = ['a', 'an', 'and', ...COLOURS, ...SHAPES, ...Object.values(PLAIN_RELATIONS), ...odd];
  return [...new Set(all.flatMap((words) => words.split(' ')))];
}

/** The words of plain captions, in a fixed order. */
export function plainVocabulary(): string[] {
  const all = ['a', 'and', ...COLOURS, ...SHAPES, ...Object.values(PLAIN_RELATIONS)];
  return [...new Set(all.flatMap((words) => words.split(' ')))];
}

/** The share of held-out plain captions, for all seeds and sizes. */
const HELD_OUT_SHARE = 0.25;
const MAX_DRAWS = 10_000;

/** The caption at an index of a split. No plain caption is in both splits. */
export function drawCaption(seed: number, split: WordSplit, index: number): Caption {
  const { prompt, expected } = drawDescribed(new RandomStream(seed, 'tiny', 'words', split, index), split);
  return { prompt, expected };
}

/** A caption with its content. A plain caption of `validation` occurs in no other split. */
export function drawDescribed(random: RandomStream, split: WordSplit): Caption & CaptionScene {
  for (let draw = 0; draw < MAX_DRAWS; draw++) {
    const caption = captionOf(random);
    const heldOut = new RandomStream('tiny', 'words', caption.expected).uniform() < HELD_OUT_SHARE;
    if (heldOut === (split === 'validation')) return caption;
  }
  throw new InternalError(`no caption for ${split} after ${MAX_DRAWS} draws`);
}

/** Two things and their relation. One caption in three names a third thing. */
function captionOf(random: RandomStream): Caption & CaptionScene {
  const thing = (): Caption & { readonly object: SceneObject } => {
    const [colour, shape] = [random.pick(COLOURS), random.pick(SHAPES)];
    const odd = random.pick(ODD.colours[colour]);
    return {
      prompt: `${/^[aeiou]/.test(odd) ? 'an' : 'a'} ${odd} ${random.pick(ODD.shapes[shape])}`,
      expected: `a ${colour} ${shape}`,
      object: { colour, shape },
    };
  };
  const relation = random.pick(RELATIONS);
  const [first, second] = [thing(), thing()];
  const two = {
    prompt: `${first.prompt} ${random.pick(ODD.relations[relation])} ${second.prompt}`,
    expected: `${first.expected} ${PLAIN_RELATIONS[relation]} ${second.expected}`,
    things: [first.object, second.object],
    relation,
  };
  if (random.integer(3) > 0) return two;
  const third = thing();
  return {
    prompt: `${two.prompt} and ${third.prompt}`,
    expected: `${two.expected} and ${third.expected}`,
    things: [...two.things, third.object],
    relation,
  };
}

/** The captions of each split. */
export const wordData = tinyDataset<TinyWordSettings, WordOptions>({
  things: 'captions',
  name: 'words',
  optionsOf: ({ seed, counts: { labelled, train, validation } }) => ({ seed, sizes: { labelled, train, validation } }),
  entryOf: ({ seed, sizes }) => ({ seed, sizes: { ...sizes } }),
  write: async (folder, { seed, sizes }) => {
    mkdirSync(join(folder, 'words'));
    for (const split of WORD_SPLITS) {
      const rows = Array.from({ length: sizes[split] }, (_, i) => drawCaption(seed, split, i));
      const text = rows.map((row) => `${JSON.stringify(row)}\n`).join('');
      writeFileAtomic(join(folder, 'words', `${split}.jsonl`), text);
    }
  },
});

/** Synonyms for the world's things. */
export const ODD: {
  readonly colours: Readonly<Record<Color, readonly string[]>>;
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

/** The plain name for each odd word of a color or a shape. */
const MEANT: ReadonlyMap<string, string> = new Map(
  [ODD.colours, ODD.shapes].flatMap((kind) =>
    Object.entries<readonly string[]>(kind).flatMap(([plain, odd]) => odd.map((word) => [word, plain] as const)),
  ),
);

/** Replaces each color and shape by one of its odd names. */
export function withOddNames(words: string, random: RandomStream): string {
  const names: Readonly<Record<string, readonly string[]>> = { ...ODD.colours, ...ODD.shapes };
  return words
    .split(' ')
    .map((word) => (word in names ? random.pick(names[word]) : word))
    .join(' ');
}

/** Replaces colors and shapes by odd names of any color and shape. */
export function anyOddNames(words: string, random: RandomStream): string {
  const any = (of: Readonly<Record<string, readonly string[]>>): string => random.pick(Object.values(of).flat());
  return words
    .split(' ')
    .map((word) => (word in ODD.colours ? any(ODD.colours) : word in ODD.shapes ? any(ODD.shapes) : word))
    .join(' ');
}

/** The plain name for an odd word. Other words unchanged. */
export function plainNameOf(word: string): string {
  return MEANT.get(word) ?? word;
}

/** Every odd name of a color or a shape. */
export function oddNames(): string[] {
  return [...MEANT.keys()];
}
