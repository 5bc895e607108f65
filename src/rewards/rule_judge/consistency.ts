/** Semantic consistency: was the edit made, and nothing else? The two scores of VIEScore's first question. */
import type { RgbImage } from '../../core/images/image.js';
import { parseInstruction, planEdit, type Plan, type EditKind } from '../../data/tiny/edits.js';
import {
  cellName,
  type Geometry,
  sameContent,
  type Scene,
  cellsOnSide,
  findObject,
  type SceneObject,
} from '../../data/tiny/world.js';
import { readScene, sceneOf, type Reading, type ReadContent } from './read_scene.js';

export interface ConsistencyScore {
  /** 0 to 10: 10 if the instruction is carried out. */
  readonly success: number;
  /** 0 to 10: 10 if only the requested parts changed. */
  readonly overedit: number;
  readonly reasoning: string;
}

/** The cells on which a plan's scores depend, for anything that compares an image with it. */
export function cellsAbout(plan: Plan): ReadonlySet<number> {
  return new Set(plan.changes.map(({ cell }) => cell));
}

/** The cells' names for a sentence. */
export function namesOf(geometry: Geometry, cells: readonly number[]): string {
  return cells.map((cell) => cellName(geometry, cell)).join(', ');
}

function describe(success: number, changed: string): string {
  const done =
    success === FULL ? 'The edit was made' : success > 0 ? 'The edit was made in part' : 'The edit was not made';
  return changed === '' ? `${done}; nothing else changed.` : `${done}; cells that should not have changed: ${changed}.`;
}

/** Scores two readings under an instruction. An instruction that cannot be carried out on the source has success 0. */
export function scoreConsistency(source: Reading, instruction: string, edited: Reading): ConsistencyScore {
  const { geometry } = source;
  const scene = sceneOf(source);
  const edit = parseInstruction(instruction, geometry);
  const plan = edit === null ? null : planEdit(scene, edit);
  if (plan === null) {
    const outside = compareOutsideEdit(scene, edited, new Set());
    const why = edit === null ? 'The instruction cannot be read' : 'The source does not allow the edit';
    return { success: 0, overedit: markOverediting(outside, OVEREDIT_MARKS), reasoning: `${why}.` };
  }
  const outside = compareOutsideEdit(plan.expected, edited, cellsAbout(plan));
  const success = scoreSuccess(plan, edited);
  return {
    success,
    overedit: markOverediting(outside, OVEREDIT_MARKS),
    reasoning: describe(success, namesOf(geometry, outside.changed)),
  };
}

/** Scores an edited image with its source. */
export function judgeConsistency(
  source: RgbImage,
  instruction: string,
  edited: RgbImage,
  geometry: Geometry,
): ConsistencyScore {
  return scoreConsistency(readScene(source, geometry), instruction, readScene(edited, geometry));
}

export interface OutsideComparison {
  /** Cells with unwanted changes, in cell order. */
  readonly changed: readonly number[];
  /** Whether there were other objects, and none of them is left. */
  readonly allLost: boolean;
}

/**
 * Compares a reading with a scene outside the cells of an edit. Unreadable cells count as changed, even inside those cells, because no edit
 * asks for unreadable content.
 */
export function compareOutsideEdit(expected: Scene, seen: Reading, about: ReadonlySet<number>): OutsideComparison {
  const changed: number[] = [];
  let objects = 0;
  let kept = 0;
  expected.cells.forEach((content, cell) => {
    const there = seen.cells[cell].content;
    const same = there !== 'unreadable' && sameContent(there, content);
    if (!same && (there === 'unreadable' || !about.has(cell))) changed.push(cell);
    if (content === null || about.has(cell)) return;
    objects += 1;
    if (same) kept += 1;
  });
  return { changed, allLost: objects > 0 && kept === 0 };
}

/** Marks by the number of wrongly changed cells. Beyond the end of the list the last mark applies. */
export type Marks = readonly number[];

/** Marks for VIEScore's over-editing. */
export const OVEREDIT_MARKS: Marks = [10, 6, 3, 1, 0];

/** Marks a comparison, an integer 0 to 10. Losing every other object gives at most 1, however few there were. */
export function markOverediting(outside: OutsideComparison, marks: Marks): number {
  const mark = marks[Math.min(outside.changed.length, marks.length - 1)];
  return outside.allLost ? Math.min(1, mark) : mark;
}

export const FULL = 10;

/** Partial credit. A complete edit gets 10, none gets 0. */
const PARTIAL = {
  /** Recolor: another shape has the requested color. */
  recoloredOtherShape: 3,
  /** Recolor: the shape is kept in a color that is neither the old nor the requested one. */
  recoloredWrongly: 2,
  /** Add: in the right cell, either color or shape is right. */
  addedHalfRight: 4,
  /** Add: in the right cell, but neither color nor shape is right. */
  addedOther: 1,
  /** Add: the right object, in another cell. */
  addedElsewhere: 3,
  /** Add beside: the right object, on the right side in the row or column, but not next to it. */
  addedOnSide: 5,
  /** Move: the object is at the target and also still where it was. */
  movedByCopy: 5,
  /** Move: the object is at the target, and something else is in its old cell. */
  movedLeavingOther: 4,
  /** Move: the object went to a wrong cell. */
  movedElsewhere: 3,
  /** Move: the object left and another with its color or its shape arrived. */
  movedHalfRight: 3,
  /** Move: the object stayed and another with its color or its shape appeared at the target. */
  copiedHalfRight: 2,
  /** Swap: one of the two arrived. */
  swappedOne: 4,
  /** Swap: both cells changed and each has the other's color, or each the other's shape. */
  swappedHalf: 3,
} as const;

function is(seen: ReadContent, wanted: SceneObject): boolean {
  return seen !== 'unreadable' && sameContent(seen, wanted);
}

/** Whether exactly one of color and shape is right. */
function isHalf(seen: ReadContent, wanted: SceneObject): boolean {
  if (seen === 'unreadable' || seen === null) return false;
  return (seen.colour === wanted.colour) !== (seen.shape === wanted.shape);
}

/** Cells with a new object: it is read there, but the source has something else there. */
function arrivals(plan: Plan, seen: Reading, object: SceneObject): number[] {
  return seen.cells.flatMap(({ content }, cell) =>
    is(content, object) && !sameContent(plan.source.cells[cell], object) ? [cell] : [],
  );
}

function scoreAddition(
  plan: Plan,
  seen: Reading,
  object: SceneObject,
  target: number,
  side: readonly number[],
): number {
  const there = seen.cells[target].content;
  if (is(there, object)) return FULL;
  const elsewhere = arrivals(plan, seen, object);
  if (elsewhere.some((cell) => side.includes(cell))) return PARTIAL.addedOnSide;
  if (isHalf(there, object)) return PARTIAL.addedHalfRight;
  if (elsewhere.length > 0) return PARTIAL.addedElsewhere;
  return there !== null && there !== 'unreadable' ? PARTIAL.addedOther : 0;
}

/** The share of an all-edit's changes that were made. Below 10 until the last one is. */
function scoreShare(plan: Plan, seen: Reading): number {
  const done = plan.changes.filter(({ cell, to }) => {
    const { content } = seen.cells[cell];
    return content !== 'unreadable' && sameContent(content, to);
  });
  return Math.floor((FULL * done.length) / plan.changes.length);
}

const SUCCESS: { readonly [K in EditKind]: (plan: Plan<K>, seen: Reading) => number } = {
  recolour: ({ edit, changes: [{ cell }] }, seen) => {
    const there = seen.cells[cell].content;
    if (there === 'unreadable' || there === null) return 0;
    if (is(there, { ...edit.object, colour: edit.colour })) return FULL;
    if (there.colour === edit.colour) return PARTIAL.recoloredOtherShape;
    return there.shape === edit.object.shape && there.colour !== edit.object.colour ? PARTIAL.recoloredWrongly : 0;
  },
  remove: ({ changes: [{ cell }] }, seen) => (seen.cells[cell].content === null ? FULL : 0),
  add: (plan, seen) => scoreAddition(plan, seen, plan.edit.object, plan.changes[0].cell, []),
  add_beside: (plan, seen) => {
    const anchor = findObject(plan.source, plan.edit.anchor);
    const side = anchor === null ? [] : cellsOnSide(plan.source.geometry, anchor, plan.edit.relation);
    return scoreAddition(plan, seen, plan.edit.object, plan.changes[0].cell, side);
  },
  move: (plan, seen) => {
    const { object } = plan.edit;
    const [from, to] = plan.changes.map(({ cell }) => seen.cells[cell].content);
    const left = from === null;
    if (is(to, object)) {
      if (left) return FULL;
      return is(from, object) ? PARTIAL.movedByCopy : PARTIAL.movedLeavingOther;
    }
    if (left && arrivals(plan, seen, object).length > 0) return PARTIAL.movedElsewhere;
    if (isHalf(to, object)) {
      if (left) return PARTIAL.movedHalfRight;
      return is(from, object) ? PARTIAL.copiedHalfRight : 0;
    }
    return 0;
  },
  swap: (plan, seen) => {
    const { object, other } = plan.edit;
    const [here, there] = plan.changes.map(({ cell }) => seen.cells[cell].content);
    const otherArrived = is(here, other);
    const objectArrived = is(there, object);
    if (otherArrived && objectArrived) return FULL;
    if (otherArrived || objectArrived) return PARTIAL.swappedOne;
    const bothChanged = !is(here, object) && !is(there, other);
    return bothChanged && isHalf(here, other) && isHalf(there, object) ? PARTIAL.swappedHalf : 0;
  },
  remove_all: scoreShare,
  recolour_all: scoreShare,
};

/** Scores a reading against a plan, an integer 0 to 10. An image equal to the source gets 0. */
export function scoreSuccess<K extends EditKind>(plan: Plan<K>, seen: Reading): number {
  const score: (plan: Plan<K>, seen: Reading) => number = SUCCESS[plan.edit.kind];
  return score(plan, seen);
}
