/**
 * The edits of the tiny world: their names, their wording, and what they change.
 *
 * Sentences are slots at fixed positions (verb, `the`, color, shape, preposition, argument…), because small models
 * learn words at fixed positions far sooner than words that wander.
 */
import { plainNameOf } from './words.js';
import {
  cellName,
  cellNames,
  cellsOnSide,
  COLOURS,
  findObject,
  RELATIONS,
  sameContent,
  SHAPES,
  DEFAULT_GEOMETRY,
  type CellContent,
  type Color,
  type Geometry,
  type Relation,
  type Scene,
  type SceneObject,
  type Shape,
} from './world.js';

interface EditFields {
  /** One object changes its color. */
  recolour: { readonly object: SceneObject; readonly colour: Color };
  /** One object disappears. */
  remove: { readonly object: SceneObject };
  /** An object appears in an empty cell. */
  add: { readonly object: SceneObject; readonly cell: number };
  /** One object moves to an empty cell. */
  move: { readonly object: SceneObject; readonly cell: number };
  /** Two objects exchange their cells. */
  swap: { readonly object: SceneObject; readonly other: SceneObject };
  /** All objects of a color, at least two, disappear. */
  remove_all: { readonly colour: Color };
  /** All objects of a color, at least two, change to another one. */
  recolour_all: { readonly colour: Color; readonly to: Color };
  /** An object appears in the cell next to another object, on the named side. */
  add_beside: { readonly object: SceneObject; readonly relation: Relation; readonly anchor: SceneObject };
}

export type EditKind = keyof EditFields;
export type Edit<K extends EditKind = EditKind> = { [P in K]: { readonly kind: P } & EditFields[P] }[K];

/** One cell's content after the edit. */
export interface Change {
  readonly cell: number;
  readonly to: CellContent;
}

interface Slots {
  COLOUR: Color;
  SHAPE: Shape;
  COLOUR2: Color;
  SHAPE2: Shape;
  CELL: number;
  RELATION: Relation;
}

interface EditRule<K extends EditKind> {
  /** The sentence. Words in capitals are slots. */
  readonly sentence: string;
  readonly slots: (edit: Edit<K>) => Partial<Slots>;
  readonly fromSlots: (slots: Slots) => Edit<K>;
  /** The changes of a scene, in the order that the rationale uses. Null if the edit cannot be applied. */
  readonly changes: (scene: Scene, edit: Edit<K>) => readonly Change[] | null;
  /** Each changed object, its cell and its change, in at most 14 words. */
  readonly rationale: (edit: Edit<K>, cells: readonly string[], scene: Scene) => string;
}

const object = (slots: Slots): SceneObject => ({ colour: slots.COLOUR, shape: slots.SHAPE });
const second = (slots: Slots): SceneObject => ({ colour: slots.COLOUR2, shape: slots.SHAPE2 });
const firstSlots = (o: SceneObject) => ({ COLOUR: o.colour, SHAPE: o.shape });
const secondSlots = (o: SceneObject) => ({ COLOUR2: o.colour, SHAPE2: o.shape });
const nameOf = (o: SceneObject): string => `${o.colour} ${o.shape}`;

function emptyCell(scene: Scene, cell: number | undefined): cell is number {
  return cell !== undefined && cell < scene.cells.length && scene.cells[cell] === null;
}

function cellsOfColor(scene: Scene, colour: Color): number[] {
  return scene.cells.flatMap((content, cell) => (content?.colour === colour ? [cell] : []));
}

/** Everything about each kind of edit except how a judge scores it. */
export const EDIT_RULES: { readonly [K in EditKind]: EditRule<K> } = {
  recolour: {
    sentence: 'recolour the COLOUR SHAPE as COLOUR2',
    slots: (edit) => ({ ...firstSlots(edit.object), COLOUR2: edit.colour }),
    fromSlots: (slots) => ({ kind: 'recolour', object: object(slots), colour: slots.COLOUR2 }),
    changes: (scene, edit) => {
      const cell = findObject(scene, edit.object);
      return cell === null || edit.colour === edit.object.colour
        ? null
        : [{ cell, to: { ...edit.object, colour: edit.colour } }];
    },
    rationale: (edit, [cell]) => `${nameOf(edit.object)} at ${cell} becomes ${edit.colour} ${edit.object.shape}`,
  },
  remove: {
    sentence: 'remove the COLOUR SHAPE',
    slots: (edit) => firstSlots(edit.object),
    fromSlots: (slots) => ({ kind: 'remove', object: object(slots) }),
    changes: (scene, edit) => {
      const cell = findObject(scene, edit.object);
      return cell === null ? null : [{ cell, to: null }];
    },
    rationale: (edit, [cell]) => `${nameOf(edit.object)} at ${cell} goes away`,
  },
  add: {
    sentence: 'add the COLOUR SHAPE at CELL',
    slots: (edit) => ({ ...firstSlots(edit.object), CELL: edit.cell }),
    fromSlots: (slots) => ({ kind: 'add', object: object(slots), cell: slots.CELL }),
    changes: (scene, edit) => (emptyCell(scene, edit.cell) ? [{ cell: edit.cell, to: edit.object }] : null),
    rationale: (edit, [cell]) => `${nameOf(edit.object)} appears at ${cell}`,
  },
  move: {
    sentence: 'move the COLOUR SHAPE to CELL',
    slots: (edit) => ({ ...firstSlots(edit.object), CELL: edit.cell }),
    fromSlots: (slots) => ({ kind: 'move', object: object(slots), cell: slots.CELL }),
    changes: (scene, edit) => {
      const from = findObject(scene, edit.object);
      if (from === null || !emptyCell(scene, edit.cell)) return null;
      return [
        { cell: from, to: null },
        { cell: edit.cell, to: edit.object },
      ];
    },
    rationale: (edit, [from, to]) => `${nameOf(edit.object)} at ${from} moves to ${to}`,
  },
  swap: {
    sentence: 'swap the COLOUR SHAPE with COLOUR2 SHAPE2',
    slots: (edit) => ({ ...firstSlots(edit.object), ...secondSlots(edit.other) }),
    fromSlots: (slots) => ({ kind: 'swap', object: object(slots), other: second(slots) }),
    changes: (scene, edit) => {
      const here = findObject(scene, edit.object);
      const there = findObject(scene, edit.other);
      if (here === null || there === null || here === there) return null;
      return [
        { cell: here, to: edit.other },
        { cell: there, to: edit.object },
      ];
    },
    rationale: (edit, [here, there]) =>
      `${nameOf(edit.object)} at ${here} swaps with ${nameOf(edit.other)} at ${there}`,
  },
  remove_all: {
    sentence: 'remove the COLOUR shapes',
    slots: (edit) => ({ COLOUR: edit.colour }),
    fromSlots: (slots) => ({ kind: 'remove_all', colour: slots.COLOUR }),
    changes: (scene, edit) => {
      const cells = cellsOfColor(scene, edit.colour);
      return cells.length < 2 ? null : cells.map((cell) => ({ cell, to: null }));
    },
    rationale: (edit, cells) => `${edit.colour} shapes at ${cells.join(' ')} go away`,
  },
  recolour_all: {
    sentence: 'recolour the COLOUR shapes as COLOUR2',
    slots: (edit) => ({ COLOUR: edit.colour, COLOUR2: edit.to }),
    fromSlots: (slots) => ({ kind: 'recolour_all', colour: slots.COLOUR, to: slots.COLOUR2 }),
    changes: (scene, edit) => {
      const cells = cellsOfColor(scene, edit.colour);
      if (cells.length < 2 || edit.to === edit.colour) return null;
      return cells.flatMap((cell) => {
        const content = scene.cells[cell];
        return content === null ? [] : [{ cell, to: { ...content, colour: edit.to } }];
      });
    },
    rationale: (edit, cells) => `${edit.colour} shapes at ${cells.join(' ')} become ${edit.to}`,
  },
  add_beside: {
    sentence: 'add the COLOUR SHAPE RELATION COLOUR2 SHAPE2',
    slots: (edit) => ({ ...firstSlots(edit.object), RELATION: edit.relation, ...secondSlots(edit.anchor) }),
    fromSlots: (slots) => ({
      kind: 'add_beside',
      object: object(slots),
      relation: slots.RELATION,
      anchor: second(slots),
    }),
    changes: (scene, edit) => {
      const anchor = findObject(scene, edit.anchor);
      if (anchor === null) return null;
      const cell = cellsOnSide(scene.geometry, anchor, edit.relation)[0];
      return emptyCell(scene, cell) ? [{ cell, to: edit.object }] : null;
    },
    rationale: (edit, [cell], scene) => {
      const anchor = findObject(scene, edit.anchor);
      const where = anchor === null ? '' : ` at ${cellName(scene.geometry, anchor)}`;
      return `${nameOf(edit.object)} appears at ${cell} ${edit.relation} ${nameOf(edit.anchor)}${where}`;
    },
  },
};

export const EDIT_KINDS = Object.keys(EDIT_RULES) as readonly EditKind[];

/** The sentence for an edit. */
export function instructionOf<K extends EditKind>(edit: Edit<K>, geometry: Geometry): string {
  const rule: EditRule<K> = EDIT_RULES[edit.kind];
  const slots: Partial<Record<string, string | number>> = rule.slots(edit);
  return rule.sentence
    .split(' ')
    .map((word) => {
      const value = slots[word];
      return typeof value === 'number' ? cellName(geometry, value) : (value ?? word);
    })
    .join(' ');
}

type SlotReader = (word: string, geometry: Geometry) => string | number | null;
const oneOf =
  (words: readonly string[]): SlotReader =>
  (word) =>
    words.includes(word) ? word : null;

const SLOT_READERS: Record<keyof Slots, SlotReader> = {
  COLOUR: oneOf(COLOURS),
  COLOUR2: oneOf(COLOURS),
  SHAPE: oneOf(SHAPES),
  SHAPE2: oneOf(SHAPES),
  RELATION: oneOf(RELATIONS),
  CELL: (word, geometry) => {
    const cell = cellNames(geometry).indexOf(word);
    return cell < 0 ? null : cell;
  },
};

/** Whether a word of a sentence is a slot. */
export function isSlot(word: string): word is keyof Slots {
  return word in SLOT_READERS;
}

function readSlots(sentence: string, words: readonly string[], geometry: Geometry): Record<string, unknown> | null {
  const pattern = sentence.split(' ');
  if (pattern.length !== words.length) return null;
  const slots: Record<string, unknown> = {};
  for (const [i, part] of pattern.entries()) {
    if (!isSlot(part)) {
      if (part !== words[i]) return null;
      continue;
    }
    const value = SLOT_READERS[part](words[i], geometry);
    if (value === null) return null;
    slots[part] = value;
  }
  return slots;
}

/** Parses a sentence. Ignores case, a final full stop and extra blanks, and understands odd names. Null if it is not an instruction. */
export function parseInstruction(text: string, geometry: Geometry): Edit | null {
  const words = text.trim().toLowerCase().replace(/\.$/, '').split(/\s+/).map(plainNameOf);
  for (const kind of EDIT_KINDS) {
    const rule = EDIT_RULES[kind];
    const slots = readSlots(rule.sentence, words, geometry);
    // The sentence decides which slots its rule needs, and each of these was just read.
    if (slots !== null) return rule.fromSlots(slots as unknown as Slots);
  }
  return null;
}

/** An edit applied to a scene. */
export interface Plan<K extends EditKind = EditKind> {
  readonly edit: Edit<K>;
  readonly source: Scene;
  readonly expected: Scene;
  /** The differences between the two, in the rule's own order (origin and target of a move, first and second object of a swap). */
  readonly changes: readonly Change[];
}

/** Applies changes to a scene. */
export function withChanges(scene: Scene, changes: readonly Change[]): Scene {
  const cells = [...scene.cells];
  for (const { cell, to } of changes) cells[cell] = to;
  return { geometry: scene.geometry, cells };
}

/** Applies an edit to a scene. Null if that is impossible (no such object, the cell is taken, …). */
export function planEdit<K extends EditKind>(scene: Scene, edit: Edit<K>): Plan<K> | null {
  const rule: EditRule<K> = EDIT_RULES[edit.kind];
  const changes = rule.changes(scene, edit);
  if (changes === null) return null;
  return { edit, source: scene, expected: withChanges(scene, changes), changes };
}

/** The expected thoughts of a thinking policy before the edit. */
export function rationaleOf<K extends EditKind>(plan: Plan<K>): string {
  const rule: EditRule<K> = EDIT_RULES[plan.edit.kind];
  const names = plan.changes.map(({ cell }) => cellName(plan.source.geometry, cell));
  return rule.rationale(plan.edit, names, plan.source);
}

/** Whether two scenes have the same objects in the same cells. */
export function sameScene(a: Scene, b: Scene): boolean {
  return a.cells.length === b.cells.length && a.cells.every((content, cell) => sameContent(content, b.cells[cell]));
}

/** Words of rationales that no instruction has. */
const RATIONALE_WORDS = ['at', 'becomes', 'become', 'goes', 'go', 'away', 'appears', 'moves', 'to', 'swaps', 'with'];

/** The distinct words of instructions and rationales for a grid. The same grid always gives the same order. */
export function tinyVocabulary(geometry: Geometry = DEFAULT_GEOMETRY): string[] {
  const fixed = EDIT_KINDS.flatMap((kind) => EDIT_RULES[kind].sentence.split(' ').filter((word) => !isSlot(word)));
  const words = [...fixed, ...RATIONALE_WORDS, ...COLOURS, ...SHAPES, ...RELATIONS, ...cellNames(geometry)];
  return [...new Set(words)];
}

/** The largest number of words in an instruction. */
export const MAX_INSTRUCTION_WORDS = Math.max(...EDIT_KINDS.map((kind) => EDIT_RULES[kind].sentence.split(' ').length));

/** The largest number of words in a rationale. */
export const MAX_RATIONALE_WORDS = 14;
