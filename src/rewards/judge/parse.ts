/**
 * From a judge's text to its scores. Tolerant of form, strict about content: whatever the wrapping, the text must contain exactly the
 * requested number of finite scores inside the scale. Several lists of scores in it must be equal. Otherwise the text gives no score. A value
 * is never clamped, guessed or completed, and if two contradict each other, none is chosen.
 */
import { must, printable } from '../../core/errors.js';
import type { LooseFields, LooseValue } from './loose_object.js';
import { readLooseList, readLooseObject } from './loose_object.js';
import { withoutThoughts } from './thoughts.js';
import type { UnscoredReason } from '../score/types.js';

/** The upper end of the scale of editrl's own questions. The lower end is 0. */
export const maxScore = 10;

/** The ends of a judge's scale. Both are scores. */
export type Scale = readonly [min: number, max: number];

const tenPoints: Scale = [0, maxScore];

/** Scores, or the reason why there are none. Null is an entry that the judge calls not applicable, which few forms of reply allow. */
export type Parsed<Score extends number | null = number | null> =
  | { readonly ok: true; readonly scores: readonly Score[] }
  | { readonly ok: false; readonly problem: UnscoredReason; readonly detail: string };

type Unread = Extract<Parsed, { readonly ok: false }>;

/** Longer replies were not requested and are not searched. */
const maxTextLength = 40_000;
/** Opening brackets that are tried before a text counts as unreadable. Bounds the work on hostile replies. */
export const maxCandidates = 64;

const delimiter = '||V^=^V||';

/**
 * Reads `arity` scores from a reply to a request for `{"score": [...], "reasoning": "..."}`. Ignores thoughts (see thoughts.ts). Prefers
 * the text between two `||V^=^V||` (the form of Ku et al., "VIEScore", 2024), then objects with numbers under `score`, then bare lists. All
 * candidates of the chosen kind have to agree. A lone number counts only if one score is requested and the reply was not `cutOff`: `1` may
 * have been the start of `10`. A reply that was `cutOff` counts only if it begins with its scores: scores after other words may be a draft.
 * Never throws.
 */
export function parseScores(text: string, arity: number, cutOff = false, scale: Scale = tenPoints): Parsed<number> {
  const checked = answerOf(text, null);
  if (!checked.ok) return checked;
  const body = checked.body.replace(/```[\w-]*/g, ' ').trim();
  if (cutOff && !/^[{[]/.test(body) && !body.startsWith(delimiter)) return cutShort(checked.body);
  const pieces = body.split(delimiter);
  const delimited = pieces.length === 3 ? readScores(pieces[1], arity, false) : null;
  const scores = delimited ?? readScores(pieces.join(' '), arity, cutOff);
  if (typeof scores === 'object' && scores !== null) return inRange(scores, scale);
  return checked.open ? cutShort(body) : unusable(body, whyNoScores(scores, arity));
}

function whyNoScores(found: 'wrong' | 'conflict' | null, arity: number): string {
  if (found === null) return `no ${arity} scores in it`;
  if (found === 'conflict') return 'its scores contradict each other';
  return `its "score" is not ${arity} plain number${arity === 1 ? '' : 's'}`;
}

const scoreTag = /<score>\s*([+-]?\d{1,4}(?:\.\d)?)\s*<\/score>/gi;

/**
 * Parses the `<score>n</score>` of a reply: a number from 0 to 10 with at most one decimal. Spaces in the tag are allowed.
 * Several valid tags must agree. Earlier reasoning may quote the tag without a number. If the last tag contains no valid
 * number, there is no score, even if an earlier one is valid. In a reply that was `cutOff`, only a tag at the very end
 * counts. Never throws.
 */
export function parseScoreTag(text: string, cutOff = false): Parsed<number> {
  const checked = answerOf(text, 'score');
  if (!checked.ok) return checked;
  const body = checked.body;
  const none = (found: string): Unread => (checked.open ? cutShort(body) : unusable(body, found));
  const opening = body.toLowerCase().lastIndexOf('<score>');
  if (opening < 0) return none('no <score> tag in it');
  const found = [...body.matchAll(scoreTag)];
  const last = found.at(-1);
  if (last?.index !== opening) return none('its last <score> tag contains no plain number');
  if (cutOff && opening + last[0].length < body.length) return cutShort(body);
  const scores = found.map(([, number]) => Number(number));
  if (scores.some((score) => score !== scores[0])) return none('its <score> tags contradict each other');
  return inRange(scores.slice(0, 1), tenPoints);
}

export type FoundAnswer = { readonly ok: true; readonly body: string; readonly open: boolean } | Unread;

/**
 * The answer in a reply, without the thoughts before it, and not empty, or the reason why there is none. `own`: as in `withoutThoughts`.
 * `isReport`: the form of the reply has no thoughts before it, and its words may quote tags such as `<image>` or `[EXIT]`.
 */
export function answerOf(text: string, own: string | null, isReport = false): FoundAnswer {
  if (text.length > maxTextLength) {
    return { ok: false, problem: 'unparsable', detail: `the reply has ${text.length} characters` };
  }
  const { body, open } = isReport ? { body: text.trim(), open: false } : withoutThoughts(text, own);
  if (body !== '') return { ok: true, body: asciiDigits(body), open };
  if (open) return cutShort(text);
  return { ok: false, problem: 'empty', detail: 'the reply contains no answer' };
}

export function cutShort(text: string): Unread {
  return { ok: false, problem: 'truncated', detail: `it ends before its answer: ${excerpt(text)}` };
}

/** Full-width digits, as East Asian keyboards write them, are the same numbers. */
function asciiDigits(text: string): string {
  return text.replace(/[\uff10-\uff19]/g, (digit) => String.fromCharCode(digit.charCodeAt(0) - 0xff10 + 0x30));
}

/** Scores. `'wrong'` if there are only unusable ones, `'conflict'` if some differ, null if there are none. */
type Found = readonly number[] | 'wrong' | 'conflict' | null;

function readScores(text: string, arity: number, cutOff: boolean): Found {
  const fromObject = readFromObjects(text, arity);
  // A list inside an unreadable object may be anything, such as a quotation in its reasoning. A list in a refusal is no grade.
  return fromObject ?? (text.includes('{') || refusal.test(text) ? null : readBare(text, arity, cutOff));
}

function readFromObjects(text: string, arity: number): Found {
  const found: (readonly number[])[] = [];
  let wrong = false;
  let at = text.indexOf('{');
  for (let tried = 0; at >= 0; tried++) {
    if (tried === maxCandidates) return null;
    const { fields, end } = readLooseObject(text, at);
    for (const value of scoresIn(fields)) {
      const scores = toNumbers(value);
      // A placeholder such as `[a, b]` may precede the answer. A list of numbers is the answer, right or wrong.
      if (scores === null) wrong = true;
      else found.push(scores);
    }
    at = text.indexOf('{', end ?? at + 1);
  }
  return agreed(found, arity) ?? (wrong ? 'wrong' : null);
}

/** The common result of all readings of a text. Null if there are none. */
function agreed(found: readonly (readonly number[])[], arity: number): Found {
  if (found.length === 0) return null;
  const [first, ...others] = found;
  const same = others.every((other) => other.length === first.length && other.every((score, i) => score === first[i]));
  if (!same) return 'conflict';
  return first.length === arity ? first : 'wrong';
}

/** The values under `score` in an object and in its inner objects: an inner object may contradict the outer one. */
function scoresIn(fields: LooseFields): readonly LooseValue[] {
  return [...(fields.get('score') ?? []), ...scoresWithin([...fields.values()].flat())];
}

function scoresWithin(values: readonly LooseValue[]): LooseValue[] {
  return values.flatMap((value) => {
    if (value.kind === 'list') return scoresWithin(value.items);
    return value.kind === 'object' ? scoresIn(value.fields) : [];
  });
}

function toNumbers(value: LooseValue): readonly number[] | null {
  if (value.kind === 'number') return Number.isFinite(value.number) ? [value.number] : null;
  if (value.kind !== 'list' || value.items.length === 0) return null;
  const numbers: number[] = [];
  for (const item of value.items) {
    if (item.kind !== 'number' || !Number.isFinite(item.number)) return null;
    numbers.push(item.number);
  }
  return numbers;
}

/** The lists of `arity` numbers in a text without objects. Lists of other lengths do not count. A lone number may be the whole text. */
function readBare(text: string, arity: number, cutOff: boolean): Found {
  if (arity === 1 && !cutOff && /^\s*[+-]?\d+(?:\.\d+)?\s*$/.test(text)) return [Number(text)];
  const found: (readonly number[])[] = [];
  let at = text.indexOf('[');
  for (let tried = 0; at >= 0; tried++) {
    if (tried === maxCandidates) return null;
    const list = readLooseList(text, at);
    const numbers = list === null ? null : toNumbers({ kind: 'list', items: list.items });
    if (numbers?.length === arity) found.push(numbers);
    at = text.indexOf('[', list?.end ?? at + 1);
  }
  return agreed(found, arity);
}

/** Scores within their scale, or a problem. Null is not applicable. */
export function inRange<Score extends number | null>(scores: readonly Score[], [min, max]: Scale): Parsed<Score> {
  if (scores.every((score) => score === null || (score >= min && score <= max))) {
    // A zero with a sign is a zero.
    return { ok: true, scores: scores.map((score) => (Object.is(score, -0) ? (0 as Score) : score)) };
  }
  return { ok: false, problem: 'out_of_range', detail: `${JSON.stringify(scores)} is not within ${min} to ${max}` };
}

/** The scores of a reply in a form without entries that may be not applicable. */
export function plainScores(scores: readonly (number | null)[]): readonly number[] {
  return scores.map((score) => must(score, 'a score of a form without N/A'));
}

const refusal =
  /^\W*(?:i['\u2019]?m (?:very |so )?sorry|sorry,|i (?:can(?:no|['\u2019])t|am (?:unable|not able|sorry)|must decline|won['\u2019]t)|as an ai\b|unfortunately, i (?:can|am))/i;

/** A text without a score: a refusal if it reads like one. */
export function unusable(body: string, found: string): Unread {
  if (refusal.test(body)) return { ok: false, problem: 'refused', detail: excerpt(body) };
  return { ok: false, problem: 'unparsable', detail: `${found}: ${excerpt(body)}` };
}

/** The start of a judge's text on one line, for messages, with escaped control characters. */
export function excerpt(text: string): string {
  const line = printable(text.replace(/\s+/g, ' ').trim());
  return line.length <= 120 ? `"${line}"` : `"${line.slice(0, 117)}..."`;
}
