/** Questions about two edits of one image, answered from the assessment of each. */
import type { Reading } from './read_scene.js';
import type { Answer } from './protocol.js';
import { scoreConsistency } from './consistency.js';
import { scoreQuality } from './quality.js';

/** All scores of one edit, each from 0 to 10. */
export interface Assessment {
  readonly success: number;
  readonly overedit: number;
  readonly naturalness: number;
  readonly artifacts: number;
}

/** The assessment of an edit by itself. */
export function assess(source: Reading, instruction: string, edited: Reading): Assessment {
  const { success, overedit } = scoreConsistency(source, instruction, edited);
  const { naturalness, artifacts } = scoreQuality(edited);
  return { success, overedit, naturalness, artifacts };
}

/** VIEScore's overall score, 0 to 10. */
function overall({ success, overedit, naturalness, artifacts }: Assessment): number {
  return Math.sqrt(Math.min(success, overedit) * Math.min(naturalness, artifacts));
}

/** Grades of edits side by side, in their order, in steps of a hundredth. */
export function compareAssessments(looks: readonly Assessment[]): Answer {
  const scores = looks.map((look) => Math.round(overall(look) * 100) / 100);
  const best = Math.max(...scores);
  const found = scores.every((score) => score === best)
    ? 'Neither is better'
    : `Edit ${scores.indexOf(best) + 1} is better`;
  return { form: 'list', scores, reasoning: `${found}.` };
}
