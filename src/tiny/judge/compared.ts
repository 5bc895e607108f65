/** Questions about several edits or several statements, answered from how each edit looks by itself. */
import type { Reading } from './read_scene.js';
import type { Answer } from './answer.js';
import { scoreConsistency } from './consistency.js';
import { scoreQuality } from './quality.js';

/** Everything that is to be said about one edit, each from 0 to 10. */
export interface Look {
  readonly success: number;
  readonly overedit: number;
  readonly naturalness: number;
  readonly artifacts: number;
}

/** How an edit looks by itself. */
export function lookAt(source: Reading, instruction: string, edited: Reading): Look {
  const { success, overedit } = scoreConsistency(source, instruction, edited);
  const { naturalness, artifacts } = scoreQuality(edited);
  return { success, overedit, naturalness, artifacts };
}

/** VIEScore's overall score, 0 to 10. */
function overall({ success, overedit, naturalness, artifacts }: Look): number {
  return Math.sqrt(Math.min(success, overedit) * Math.min(naturalness, artifacts));
}

/** Grades of edits side by side, in their order, in steps of a hundredth. */
export function compareLooks(looks: readonly Look[]): Answer {
  const scores = looks.map((look) => Math.round(overall(look) * 100) / 100);
  const best = Math.max(...scores);
  const found = scores.every((score) => score === best)
    ? 'Neither is better'
    : `Edit ${scores.indexOf(best) + 1} is better`;
  return { form: 'list', scores, reasoning: `${found}.` };
}

/** The statements that it writes and understands: each says how far it holds. */
const STATEMENTS = [
  {
    mark: 'must',
    about: /carried out/,
    text: (asked: string) => `What was asked for is carried out: ${asked}`,
    of: 'success',
  },
  { mark: '3', about: /nothing else/, text: () => 'Beside it nothing else differs from the original.', of: 'overedit' },
  { mark: '1', about: /fit together/, text: () => 'All parts fit together like one drawing.', of: 'naturalness' },
  { mark: '1', about: /blemish/, text: () => 'There is no blemish, smear or stray mark.', of: 'artifacts' },
] as const satisfies readonly { mark: string; about: RegExp; text: (asked: string) => string; of: keyof Look }[];

/** The statements by which it would judge any edit, one a line. */
export function writeChecks(instruction: string): Answer {
  const lines = STATEMENTS.map(({ mark, text }) => `${mark}: ${text(instruction)}`);
  return { form: 'list', scores: [], reasoning: lines.join('\n') };
}

/** How far each statement holds; null where it does not understand one. */
export function checkStatements(statements: readonly string[], look: Look): Answer | null {
  const scores: number[] = [];
  for (const statement of statements) {
    const known = STATEMENTS.find(({ about }) => about.test(statement));
    if (known === undefined) return null;
    scores.push(look[known.of]);
  }
  return { form: 'list', scores, reasoning: 'Each statement was looked at by itself.' };
}
