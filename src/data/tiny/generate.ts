/** Seeded scenes and edits. Example i of a split is a pure function of (seed, set, split, i). */
import { InternalError } from '../../core/errors.js';
import { RandomStream } from '../../core/random.js';
import { EDIT_KINDS, planEdit, type Edit, type EditKind, type Plan } from './edits.js';
import {
  ALL_OBJECTS,
  cellsOnSide,
  COLOURS,
  RELATIONS,
  SHAPES,
  contentNumber,
  type CellContent,
  type Color,
  type Geometry,
  type Scene,
  type SceneObject,
} from './world.js';

export const MIN_OBJECTS = 3;
export const MAX_OBJECTS = 6;

export type EditSetName = 's' | 'c';
export const EDIT_SETS: readonly EditSetName[] = ['s', 'c'];

/** Relative weights of the kinds of edit in a set. A missing kind does not occur. */
export type EditMixture = Readonly<Partial<Record<EditKind, number>>>;

/** S: simple edits, C: complex ones. */
export const EDIT_MIXTURES: Readonly<Record<EditSetName, EditMixture>> = {
  s: { recolour: 1, remove: 1, add: 1 },
  c: { move: 8, swap: 1, remove_all: 2, recolour_all: 2, add_beside: 1 },
};

function between(random: RandomStream, fewest: number, most: number): number {
  return fewest + random.integer(most - fewest + 1);
}

/** Puts objects into distinct random cells. */
function scatter(random: RandomStream, geometry: Geometry, objects: readonly SceneObject[]): Scene {
  const count = geometry.columns * geometry.rows;
  const cells = new Array<CellContent>(count).fill(null);
  for (const object of objects) {
    let cell = random.integer(count);
    while (cells[cell] !== null) cell = random.integer(count);
    cells[cell] = object;
  }
  return { geometry, cells };
}

/** A scene of `fewest` to 6 distinct objects. */
export function drawRandomScene(random: RandomStream, geometry: Geometry, fewest = MIN_OBJECTS): Scene {
  const objects: SceneObject[] = [];
  const count = between(random, fewest, MAX_OBJECTS);
  while (objects.length < count) {
    const object = random.pick(ALL_OBJECTS);
    if (!objects.includes(object)) objects.push(object);
  }
  return scatter(random, geometry, objects);
}

interface Drawn {
  readonly scene: Scene;
  readonly edit: Edit;
}

function objectsOf(scene: Scene): SceneObject[] {
  return scene.cells.filter((content) => content !== null);
}

function absentObject(random: RandomStream, scene: Scene): SceneObject {
  const present = objectsOf(scene);
  return random.pick(ALL_OBJECTS.filter((o) => !present.some((p) => p.colour === o.colour && p.shape === o.shape)));
}

function emptyCells(scene: Scene): number[] {
  return scene.cells.flatMap((content, cell) => (content === null ? [cell] : []));
}

/**
 * A scene with two or three objects of one color and two or three of others. Within the color, equal shapes may occur.
 */
function sceneWithColorGroup(random: RandomStream, geometry: Geometry): { scene: Scene; colours: readonly Color[] } {
  const colours = random.shuffled(COLOURS);
  const group = Array.from({ length: between(random, 2, 3) }, () => ({
    colour: colours[0],
    shape: random.pick(SHAPES),
  }));
  // The second color stays absent, so that a group can be recolored to one that no other object has.
  const others = random.shuffled(ALL_OBJECTS.filter((o) => o.colour !== colours[0] && o.colour !== colours[1]));
  return { scene: scatter(random, geometry, [...group, ...others.slice(0, between(random, 2, 3))]), colours };
}

/** Draws an example of each kind. Null if this draw has none. */
const DRAWS: { readonly [K in EditKind]: (random: RandomStream, geometry: Geometry) => Drawn | null } = {
  recolour: (random, geometry) => {
    const scene = drawRandomScene(random, geometry);
    const object = random.pick(objectsOf(scene));
    const taken = objectsOf(scene).flatMap((o) => (o.shape === object.shape ? [o.colour] : []));
    const free = COLOURS.filter((colour) => !taken.includes(colour));
    return free.length === 0 ? null : { scene, edit: { kind: 'recolour', object, colour: random.pick(free) } };
  },
  remove: (random, geometry) => {
    const scene = drawRandomScene(random, geometry);
    return { scene, edit: { kind: 'remove', object: random.pick(objectsOf(scene)) } };
  },
  add: (random, geometry) => {
    const scene = drawRandomScene(random, geometry);
    const object = absentObject(random, scene);
    return { scene, edit: { kind: 'add', object, cell: random.pick(emptyCells(scene)) } };
  },
  move: (random, geometry) => {
    const scene = drawRandomScene(random, geometry);
    const object = random.pick(objectsOf(scene));
    return { scene, edit: { kind: 'move', object, cell: random.pick(emptyCells(scene)) } };
  },
  swap: (random, geometry) => {
    // One object more than for other kinds, so that two stay unchanged.
    const scene = drawRandomScene(random, geometry, MIN_OBJECTS + 1);
    const [object, other] = random.shuffled(objectsOf(scene));
    return { scene, edit: { kind: 'swap', object, other } };
  },
  remove_all: (random, geometry) => {
    const { scene, colours } = sceneWithColorGroup(random, geometry);
    return { scene, edit: { kind: 'remove_all', colour: colours[0] } };
  },
  recolour_all: (random, geometry) => {
    const { scene, colours } = sceneWithColorGroup(random, geometry);
    return { scene, edit: { kind: 'recolour_all', colour: colours[0], to: colours[1] } };
  },
  add_beside: (random, geometry) => {
    const scene = drawRandomScene(random, geometry);
    const relation = random.pick(RELATIONS);
    const anchors = scene.cells.flatMap((content, cell) => {
      const next = cellsOnSide(geometry, cell, relation)[0] as number | undefined;
      return content !== null && next !== undefined && scene.cells[next] === null ? [content] : [];
    });
    if (anchors.length === 0) return null;
    const edit: Edit = {
      kind: 'add_beside',
      object: absentObject(random, scene),
      relation,
      anchor: random.pick(anchors),
    };
    return { scene, edit };
  },
};

function pickKind(random: RandomStream, mixture: EditMixture): EditKind {
  const kinds = EDIT_KINDS.filter((kind) => (mixture[kind] ?? 0) > 0);
  if (kinds.length === 0) throw new InternalError('an edit mixture gives no kind a positive weight');
  let rest = random.uniform() * kinds.reduce((sum, kind) => sum + (mixture[kind] ?? 0), 0);
  for (const kind of kinds) {
    rest -= mixture[kind] ?? 0;
    if (rest < 0) return kind;
  }
  return kinds[kinds.length - 1];
}

const MAX_DRAWS = 100_000;

/**
 * Draws until both scenes of the example belong to the split. The kind is drawn only once, so that the mixture is
 * exact.
 */
export function drawExample(
  seed: number,
  set: EditSetName,
  split: EditSplitName,
  index: number,
  geometry: Geometry,
  mixture: EditMixture = EDIT_MIXTURES[set],
): Plan {
  const random = new RandomStream(seed, 'tiny', set, split, index);
  const kind = pickKind(random, mixture);
  return drawOfKind(random, kind, geometry, split);
}

/** Draws an example of one kind. With a split, both of its scenes belong to it. */
export function drawOfKind(random: RandomStream, kind: EditKind, geometry: Geometry, split?: SplitName): Plan {
  for (let draw = 0; draw < MAX_DRAWS; draw++) {
    const drawn = DRAWS[kind](random, geometry);
    if (drawn === null) continue;
    if (split !== undefined && splitOf(drawn.scene) !== split) continue;
    const plan = planEdit(drawn.scene, drawn.edit);
    if (plan === null) throw new InternalError(`drew an edit of kind ${kind} that cannot be applied`);
    if (split === undefined || splitOf(plan.expected) === split) return plan;
  }
  throw new InternalError(`no example of kind ${kind} after ${MAX_DRAWS} draws`);
}

/** A single scene of the images split: sources and results of all kinds of edit in turn. */
export function drawImageScene(seed: number, index: number, geometry: Geometry): Scene {
  const random = new RandomStream(seed, 'tiny', 'images', 'train', index);
  const kind = EDIT_KINDS[index % EDIT_KINDS.length];
  for (let draw = 0; draw < MAX_DRAWS; draw++) {
    const plan = drawOfKind(random, kind, geometry);
    const scene = random.uniform() < 0.5 ? plan.source : plan.expected;
    if (splitOf(scene) === 'images') return scene;
  }
  throw new InternalError(`no image scene after ${MAX_DRAWS} draws`);
}

/** Shares of all scenes, in the order of their hash ranges. */
export const SPLIT_SHARES = {
  /** Labeled edits. */
  train: 0.15,
  /** Edits without an answer. */
  prompts: 0.4,
  /** Held-out labeled edits. */
  validation: 0.15,
  /** Edits with the answer's pixels, for rewards that compare with them. */
  truth: 0.15,
  /** Single scenes for the image tokenizer. */
  images: 0.15,
} as const;

export type SplitName = keyof typeof SPLIT_SHARES;
export type EditSplitName = Exclude<SplitName, 'images'>;
export const EDIT_SPLITS: readonly EditSplitName[] = ['train', 'prompts', 'validation', 'truth'];

/** A scene's place in [0, 1): a multiplicative hash of its cells, with the finalizer of MurmurHash3 (Appleby, 2011). */
function hashPlace(scene: Scene): number {
  let h = Math.imul(scene.geometry.columns, 0x9e3779b1) ^ scene.geometry.rows;
  for (const content of scene.cells) {
    h = Math.imul(h ^ contentNumber(content), 0x9e3779b1);
    h ^= h >>> 15;
  }
  h = Math.imul(h ^ (h >>> 16), 0x85ebca6b);
  h = Math.imul(h ^ (h >>> 13), 0xc2b2ae35);
  return ((h ^ (h >>> 16)) >>> 0) / 2 ** 32;
}

/** The only split that a scene belongs to. */
export function splitOf(scene: Scene): SplitName {
  const place = hashPlace(scene);
  let edge = 0;
  for (const name of Object.keys(SPLIT_SHARES) as SplitName[]) {
    edge += SPLIT_SHARES[name];
    if (place < edge) return name;
  }
  // Rounding of the running sum may leave a small gap below 1.
  return 'images';
}
