/** Semantic consistency: was the edit made, and nothing else? The two scores of VIEScore's first question. */
import type { RgbImage } from '../../core/image.js';
import { parseInstruction, planEdit, type Plan } from '../world/edits.js';
import { cellName, type Geometry } from '../world/world.js';
import { readScene, sceneOf, type Reading } from './read_scene.js';
import { compareOutsideEdit, markOverediting, OVEREDIT_MARKS } from './overedit.js';
import { FULL, scoreSuccess } from './success.js';

export interface ConsistencyScore {
  /** 0 to 10: 10 if the instruction is carried out. */
  readonly success: number;
  /** 0 to 10: 10 if only what was asked for changed. */
  readonly overedit: number;
  readonly reasoning: string;
}

/** The cells that a plan's scores depend on, for anything that compares a picture with it. */
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
    const spared = compareOutsideEdit(scene, edited, new Set());
    const why = edit === null ? 'The instruction is none that can be read' : 'The source does not allow the edit';
    return { success: 0, overedit: markOverediting(spared, OVEREDIT_MARKS), reasoning: `${why}.` };
  }
  const spared = compareOutsideEdit(plan.expected, edited, cellsAbout(plan));
  const success = scoreSuccess(plan, edited);
  return {
    success,
    overedit: markOverediting(spared, OVEREDIT_MARKS),
    reasoning: describe(success, namesOf(geometry, spared.changed)),
  };
}

/** Scores an edited image beside its source. */
export function judgeConsistency(
  source: RgbImage,
  instruction: string,
  edited: RgbImage,
  geometry: Geometry,
): ConsistencyScore {
  return scoreConsistency(readScene(source, geometry), instruction, readScene(edited, geometry));
}
