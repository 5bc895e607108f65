/**
 * Ground score: how well a prediction agrees with the true result of an instruction. The source is not shown. Its relevant parts follow
 * from the truth, the instruction and, if the instruction destroys them (the place of something removed), from the prediction.
 */
import {
  parseInstruction,
  planEdit,
  sameScene,
  withChanges,
  type Change,
  type Edit,
  type EditKind,
} from '../../data/tiny/edits.js';
import {
  cellsOnSide,
  findObject,
  sameContent,
  type Color,
  type Scene,
  type SceneObject,
} from '../../data/tiny/world.js';
import {
  cellsAbout,
  namesOf,
  compareOutsideEdit,
  markOverediting,
  type Marks,
  FULL,
  scoreSuccess,
} from './consistency.js';
import { sceneOf, type Reading } from './read_scene.js';

export interface GroundScore {
  /** 0 to 10. */
  readonly score: number;
  readonly reasoning: string;
}

/** Marks for the number of unedited cells that differ from the truth, in the bands of the question. */
const GROUND_MARKS: Marks = [10, 7, 4, 2, 0];

function emptyInBoth(truth: Scene, seen: Scene): number[] {
  return truth.cells.flatMap((content, cell) => (content === null && seen.cells[cell] === null ? [cell] : []));
}

/** The possible cells of an object that the truth no longer shows: its cell in the prediction, else any free cell. */
function formerCell(truth: Scene, seen: Scene, object: SceneObject): number | undefined {
  const leftover = seen.cells.findIndex((content, cell) => truth.cells[cell] === null && sameContent(content, object));
  return leftover >= 0 ? leftover : emptyInBoth(truth, seen)[0];
}

function put(cell: number | undefined | null, to: SceneObject | null): readonly Change[] | null {
  return cell === undefined || cell === null ? null : [{ cell, to }];
}

/** The remaining objects of a group that the truth no longer shows. At least two cells, because a group has at least two. */
function formerGroup(truth: Scene, seen: Scene, colour: Color): readonly Change[] | null {
  const left = seen.cells.flatMap((content, cell) =>
    content?.colour === colour && truth.cells[cell] === null ? [{ cell, to: content }] : [],
  );
  const gone = emptyInBoth(truth, seen)
    .slice(0, Math.max(0, 2 - left.length))
    .map((cell): Change => ({ cell, to: { colour, shape: 'circle' } }));
  return left.length + gone.length < 2 ? null : [...left, ...gone];
}

/** Reconstructs a source from the true result, by kind of edit. Null if the truth does not show the edit's result. */
const UNDO: { readonly [K in EditKind]: (truth: Scene, edit: Edit<K>, seen: Scene) => readonly Change[] | null } = {
  recolour: (truth, edit) => put(findObject(truth, { ...edit.object, colour: edit.colour }), edit.object),
  remove: (truth, edit, seen) => put(formerCell(truth, seen, edit.object), edit.object),
  add: (truth, edit) => (sameContent(truth.cells[edit.cell], edit.object) ? put(edit.cell, null) : null),
  move: (truth, edit, seen) => {
    if (!sameContent(truth.cells[edit.cell], edit.object)) return null;
    const from = put(formerCell(truth, seen, edit.object), edit.object);
    return from === null ? null : [...from, { cell: edit.cell, to: null }];
  },
  swap: (truth, edit) => {
    const objectNow = findObject(truth, edit.object);
    const otherNow = findObject(truth, edit.other);
    if (objectNow === null || otherNow === null) return null;
    return [
      { cell: objectNow, to: edit.other },
      { cell: otherNow, to: edit.object },
    ];
  },
  remove_all: (truth, edit, seen) => formerGroup(truth, seen, edit.colour),
  recolour_all: (truth, edit) => {
    const group = truth.cells.flatMap((content, cell) =>
      content?.colour === edit.to ? [{ cell, to: { ...content, colour: edit.colour } }] : [],
    );
    return group.length < 2 ? null : group;
  },
  add_beside: (truth, edit) => {
    const anchor = findObject(truth, edit.anchor);
    const cell = anchor === null ? undefined : cellsOnSide(truth.geometry, anchor, edit.relation)[0];
    return cell !== undefined && sameContent(truth.cells[cell], edit.object) ? put(cell, null) : null;
  },
};

function undo<K extends EditKind>(truth: Scene, edit: Edit<K>, seen: Scene): readonly Change[] | null {
  const rule: (truth: Scene, edit: Edit<K>, seen: Scene) => readonly Change[] | null = UNDO[edit.kind];
  return rule(truth, edit, seen);
}

/** Scores a prediction against the truth. If the truth does not show the instruction's result, only equality counts. */
export function scoreGround(truth: Reading, instruction: string, predicted: Reading): GroundScore {
  const result = sceneOf(truth);
  const seen = sceneOf(predicted);
  const edit = parseInstruction(instruction, truth.geometry);
  const back = edit === null ? null : undo(result, edit, seen);
  const plan = edit === null || back === null ? null : planEdit(withChanges(result, back), edit);
  if (plan === null) {
    const outside = compareOutsideEdit(result, predicted, new Set());
    const equal = outside.changed.length === 0;
    return { score: equal ? FULL : 0, reasoning: equal ? 'Both images agree.' : 'The images differ.' };
  }
  // The undone scene must lead back to the truth. Otherwise the instruction is ambiguous here and the truth decides.
  const expected = sameScene(plan.expected, result) ? plan.expected : result;
  const outside = compareOutsideEdit(expected, predicted, cellsAbout(plan));
  const score = Math.min(scoreSuccess(plan, predicted), markOverediting(outside, GROUND_MARKS));
  const others = namesOf(truth.geometry, outside.changed);
  return {
    score,
    reasoning:
      score === FULL
        ? 'The prediction shows the same change as the truth.'
        : `The prediction differs from the truth${others === '' ? ' in what was asked for' : ` also in ${others}`}.`,
  };
}
