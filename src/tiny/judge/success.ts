/**
 * How far an edit was carried out, 0 to 10, by kind of edit. Partial credit is for progress that a person would recognize; an object that is asked to
 * move and merely disappears is no progress.
 */
import type { EditKind, Plan } from '../world/edits.js';
import { cellsOnSide, findObject, sameContent, type SceneObject } from '../world/world.js';
import type { Reading, SeenContent } from './read_scene.js';

export const FULL = 10;

/** Partial credit by what was achieved; full marks are 10, nothing is 0. */
const PARTIAL = {
  /** Recolour: the asked colour on another shape. */
  recolouredOtherShape: 3,
  /** Recolour: the shape is kept in a colour that is neither the old nor the asked one. */
  recolouredWrongly: 2,
  /** Add: in the right cell, either colour or shape is right. */
  addedHalfRight: 4,
  /** Add: in the right cell, but neither colour nor shape is right. */
  addedOther: 1,
  /** Add: the right object, in another cell. */
  addedElsewhere: 3,
  /** Add beside: the right object, on the right side in the row or column, but not next to it. */
  addedOnSide: 5,
  /** Move: the object is at the target and also still where it was. */
  movedByCopy: 5,
  /** Move: the object is at the target; something else stands where it was. */
  movedLeavingOther: 4,
  /** Move: the object went to a wrong cell. */
  movedElsewhere: 3,
  /** Move: the object left and one with its colour or its shape arrived. */
  movedHalfRight: 3,
  /** Move: the object stayed and one with its colour or its shape appeared at the target. */
  copiedHalfRight: 2,
  /** Swap: one of the two arrived. */
  swappedOne: 4,
  /** Swap: both cells changed and each took on the other's colour, or each the other's shape. */
  swappedHalf: 3,
} as const;

function is(seen: SeenContent, wanted: SceneObject): boolean {
  return seen !== 'unreadable' && sameContent(seen, wanted);
}

/** Whether exactly one of colour and shape is right. */
function isHalf(seen: SeenContent, wanted: SceneObject): boolean {
  if (seen === 'unreadable' || seen === null) return false;
  return (seen.colour === wanted.colour) !== (seen.shape === wanted.shape);
}

/** Cells where an object newly appeared: it is read there and the source has something else there. */
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

/** The share of an all-edit's changes that were made; below 10 until the last one is. */
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
    if (there.colour === edit.colour) return PARTIAL.recolouredOtherShape;
    return there.shape === edit.object.shape && there.colour !== edit.object.colour ? PARTIAL.recolouredWrongly : 0;
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

/** Scores what is seen against a plan, an integer 0 to 10; a picture equal to the source gets 0. */
export function scoreSuccess<K extends EditKind>(plan: Plan<K>, seen: Reading): number {
  const score: (plan: Plan<K>, seen: Reading) => number = SUCCESS[plan.edit.kind];
  return score(plan, seen);
}
