/** The checks that a judge writes for a prompt: one a line, its weight or `must` before it. */
import type { JudgeImage } from '../../judge/images.js';
import type { JudgeQuery } from '../../judge/judge.js';
import { answerOf, excerpt, unusable, type Parsed } from '../../judge/parse.js';
import { checksPrompt, withInstruction } from '../../judge/prompts.js';
import type { JudgeItem } from '../../score/types.js';

/** One statement about a finished picture. */
export interface Check {
  readonly check: string;
  /** Its share, relative to the others; above 0. */
  readonly weight: number;
  /** Whether a picture is worthless unless it holds. */
  readonly must: boolean;
}

/** The weight of what must hold: as much as the most important of the others may have. */
const MUST_WEIGHT = 3;
const FEWEST = 2;

const line = /^\s*(?:[-*•]\s*|\d+[.)]\s+)?\**(must|[123])\**\s*[:：]\**\s*(\S.*?)\s*$/iu;

/** The checks of a reply, in order; lines of another form are none. */
export function checksOf(reply: string): Check[] {
  const answer = answerOf(reply);
  if (!answer.ok) return [];
  return answer.body.split('\n').flatMap((text) => {
    const found = line.exec(text);
    if (found === null) return [];
    const [, mark, check] = found;
    const must = mark.toLowerCase() === 'must';
    return [{ check, weight: must ? MUST_WEIGHT : Number(mark), must }];
  });
}

/** Gives the weights as scores. A list that is too short or too long is none, and so is one that says the same twice or was cut off. */
function parseChecks(reply: string, most: number, cutOff: boolean): Parsed {
  const answer = answerOf(reply);
  if (!answer.ok) return answer;
  const checks = checksOf(reply);
  if (cutOff) {
    return { ok: false, problem: 'truncated', detail: `the list of checks does not end: ${excerpt(answer.body)}` };
  }
  if (checks.length < FEWEST || checks.length > most) {
    return unusable(answer.body, `${checks.length} checks in it, not ${FEWEST} to ${most}`);
  }
  const different = new Set(checks.map(({ check }) => check.toLowerCase()));
  if (different.size < checks.length) return unusable(answer.body, 'it says a check twice');
  return { ok: true, scores: checks.map(({ weight }) => weight) };
}

/** Asks for a prompt's checks. */
export function checksQuery(
  { key, instruction }: JudgeItem,
  source: readonly JudgeImage[],
  most: number,
  maxCompletionTokens: number,
): JudgeQuery {
  const text = withInstruction(checksPrompt(most, source.length > 0), instruction);
  return {
    key: `${key}/rubric_checks`,
    messages: [{ role: 'user', parts: [text, ...source] }],
    format: null,
    temperature: 0,
    maxCompletionTokens,
    parse: (reply, cutOff = false) => parseChecks(reply, most, cutOff),
  };
}
