/** Scores whether an edit left everything else alone. */
import { sameContent, type Scene } from '../world/world.js';
import type { Reading } from './read_scene.js';

export interface SparedComparison {
  /** Cells that changed though they should not have, in cell order. */
  readonly changed: readonly number[];
  /** Whether there were objects to leave alone and none of them is left. */
  readonly allLost: boolean;
}

/**
 * Compares a reading with a scene outside the cells that an edit is about. Unreadable cells count as changed, even inside those cells: nobody asked
 * for garbage.
 */
export function compareOutsideEdit(expected: Scene, seen: Reading, about: ReadonlySet<number>): SparedComparison {
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

/** Marks by the number of wrongly changed cells; beyond the end of the list the last mark applies. */
export type Marks = readonly number[];

/** Marks for VIEScore's over-editing. */
export const OVEREDIT_MARKS: Marks = [10, 6, 3, 1, 0];

/** Marks a comparison, an integer 0 to 10. Losing every other object gives at most 1, however few there were. */
export function markOverediting(spared: SparedComparison, marks: Marks): number {
  const mark = marks[Math.min(spared.changed.length, marks.length - 1)];
  return spared.allLost ? Math.min(1, mark) : mark;
}
