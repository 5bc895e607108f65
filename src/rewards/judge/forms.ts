/** The forms of a judge's reply, as data: what a question asks for, and how its reply is read. */
import { readLooseObject, type LooseFields, type LooseValue } from './loose_object.js';
import {
  answerOf,
  cutShort,
  excerpt,
  inRange,
  maxCandidates,
  parseScores,
  unusable,
  type Parsed,
  type Scale,
} from './parse.js';

/** A graded aspect of a reply in Markdown. */
export interface Aspect {
  /** Its heading, without number and colon. */
  readonly heading: string;
  /** Whether the judge may answer N/A in place of a score. */
  readonly optional: boolean;
}

export type ReplyForm =
  /** `{"score": [a, b], ...}`, with so many scores. */
  | { readonly kind: 'scores'; readonly count: number; readonly scale: Scale }
  /** For each aspect in order: a line `1. Heading:`, any words, and a line `## Score: n`. */
  | { readonly kind: 'aspects'; readonly aspects: readonly Aspect[]; readonly scale: Scale }
  /** Any words, and for each name a whole number: `**Final Score:** **4**`, `"quality_score": 4`. */
  | { readonly kind: 'named'; readonly names: readonly string[]; readonly scale: Scale }
  /** So many lines `Name: n` with whole numbers, whatever their names are. */
  | { readonly kind: 'lines'; readonly count: number; readonly scale: Scale }
  /** `{"winner": "Image A"}`, `"Image B"` or `"Tie"`. The scores are 1 and 0 for a winner, and 0.5 each for a tie. */
  | { readonly kind: 'winner' };

/** Reads a reply to a question that asks for a form. `cutOff` is that of `JudgeQuery.parse`. Never throws. */
export function parseReply(form: ReplyForm, text: string, cutOff = false): Parsed {
  switch (form.kind) {
    case 'scores':
      return parseScores(text, form.count, cutOff, form.scale);
    case 'aspects':
      return parseAspects(form.aspects, form.scale, text, cutOff);
    case 'named':
      return parseNamed(form.names, form.scale, text, cutOff);
    case 'lines':
      return parseLines(form.count, form.scale, text, cutOff);
    case 'winner':
      return parseWinner(text, cutOff);
  }
}

/** A whole number that is not the start of a range such as `1-5`. It may repeat the end of its scale: `4/5`. */
const wholeNumber = String.raw`(?<score>[+-]?\d{1,4}(?:\.\d{1,6})?)(?![\d.]*\d)(?![\p{L}\p{N}%])(?!\s*[-\u2013]\s*\d)(?:\s*(?:\/|out of)\s*(?<end>\d{1,4}))?`;

/**
 * The number after each name. All numbers after a name have to be equal, and its last mention has to have one: earlier ones may quote the
 * form of the reply. In a reply that was `cutOff`, a number at its very end may lack digits.
 */
function parseNamed(names: readonly string[], scale: Scale, text: string, cutOff: boolean): Parsed {
  const checked = answerOf(text, null);
  if (!checked.ok) return checked;
  const { body, open } = checked;
  const scores: number[] = [];
  for (const name of names) {
    const words = name.replaceAll(/[ _]/g, '[ _]+');
    const mentions = [...body.matchAll(new RegExp(String.raw`(?<![\p{L}_])${words}s?(?![\p{L}_])`, 'giu'))];
    const number = new RegExp(String.raw`["'*\u0060]*\s*[:\uff1a]["'*\u0060\s]*${wholeNumber}`, 'iuy');
    const found = mentions.map((mention) => {
      number.lastIndex = mention.index + mention[0].length;
      return number.exec(body);
    });
    const last = found.at(-1);
    if (last === undefined || last === null) {
      return cutOff || open ? cutShort(body) : unusable(body, `no number for '${name}' in it`);
    }
    if (cutOff && last.index + last[0].length === body.length) return cutShort(body);
    const values = found.flatMap((one) => (one === null ? [] : [gradeOf(one.groups ?? {}, scale)]));
    const [first] = values;
    if (found.some((one) => one !== null && hasFurtherNumber(body.slice(one.index + one[0].length)))) {
      return unusable(body, `more than one number for '${name}'`);
    }
    if (values.some((value) => value !== first)) {
      return unusable(body, `its numbers for '${name}' contradict each other`);
    }
    if (first === null) return unusable(body, `its number for '${name}' is ${excerpt(last[0])}`);
    scores.push(first);
  }
  return inRange(scores, scale);
}

/** Whether another number follows in the same sentence or field, as in `4 or 5`. A field ends before the next name and its colon. */
function hasFurtherNumber(rest: string): boolean {
  const end = rest.search(/[\n}]|[.;](?=\s|$)|,[^,:\n\d]{0,60}:/);
  return /\p{N}/u.test(end === -1 ? rest : rest.slice(0, end));
}

/** The whole number of a match of `wholeNumber`. Null for a fraction, or for a number on another scale. */
function gradeOf(groups: Readonly<Record<string, string | undefined>>, [, max]: Scale): number | null {
  const { score = '', end } = groups;
  const value = Number(score);
  return Number.isInteger(value) && (end === undefined || Number(end) === max) ? value : null;
}

const scoreLine = new RegExp(
  String.raw`^[ \t]*[-*#]*[ \t]*\**(?<name>\p{L}[^:\uff1a\n]{0,80}?)\**[ \t]*[:\uff1a]\**[ \t]*\**${wholeNumber}\**\.?\**[ \t]*$`,
  'gimu',
);

/** Lines with a name and a number. A name that is repeated has to have the same number. */
function parseLines(count: number, scale: Scale, text: string, cutOff: boolean): Parsed {
  const checked = answerOf(text, null);
  if (!checked.ok) return checked;
  const { body, open } = checked;
  const scores = new Map<string, number>();
  for (const { index, 0: line, groups = {} } of body.matchAll(scoreLine)) {
    if (cutOff && index + line.length === body.length) return cutShort(body);
    const name = groups['name'].trim().toLowerCase();
    const value = gradeOf(groups, scale);
    if (value === null) return unusable(body, `its line ${excerpt(line)} has no whole number`);
    if ((scores.get(name) ?? value) !== value) return unusable(body, 'its scores contradict each other');
    scores.set(name, value);
  }
  if (scores.size === count) return inRange([...scores.values()], scale);
  return (cutOff || open) && scores.size < count
    ? cutShort(body)
    : unusable(body, `${scores.size} lines with a score in it, not ${count}`);
}

/** Everything from here on is a summary or a proposal, whatever headings it repeats. */
const endOfGrades = /^[ \t]*#{1,6}[ \t]*\**(?:summary|user request refinement)\b/im;

/**
 * The scores of aspects. An aspect that is graded twice has to get the same score, and one without a readable score leaves the reply
 * without any. A score may repeat the end of its scale (`3.5/4`) and may be followed by words in parentheses.
 */
function parseAspects(aspects: readonly Aspect[], scale: Scale, text: string, cutOff: boolean): Parsed {
  const checked = answerOf(text, null, /^\s*#/.test(text));
  if (!checked.ok) return checked;
  const { body, open } = checked;
  const graded = body.slice(0, endOfGrades.exec(body)?.index ?? body.length);
  const places = aspects.map(({ heading }) => [...graded.matchAll(headingPattern(heading))]);
  const starts = places.flatMap((found) => found.map(({ index }) => index)).sort((one, other) => one - other);
  const scores: (number | null)[] = [];
  for (const [at, { heading, optional }] of aspects.entries()) {
    const found = places[at].flatMap(({ index, 0: line }) => {
      const until = starts.find((start) => start > index) ?? graded.length;
      return gradesIn(graded.slice(index + line.length, until), until === body.length && cutOff);
    });
    if (found.length === 0) {
      return cutOff || open ? cutShort(body) : unusable(body, `no score for '${heading}' in it`);
    }
    const values = found.map((grade) => valueOf(grade, scale));
    const [first] = values;
    if (values.some((value) => value !== first)) {
      return unusable(body, `its scores for '${heading}' contradict each other`);
    }
    if (first === 'wrong' || (first === null && !optional)) {
      return unusable(body, `its score for '${heading}' is ${excerpt(found[0])}`);
    }
    scores.push(first);
  }
  return inRange(scores, scale);
}

/** A line with a heading: its words alone, or its number and words before anything else. */
function headingPattern(heading: string): RegExp {
  const words = heading.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replaceAll(' ', String.raw`[ \t]+`);
  const mark = String.raw`[ \t]*#{0,6}[ \t]*\**`;
  const numbered = String.raw`\d{1,2}[.)][ \t]*\**${words}\**[ \t]*:.*`;
  return new RegExp(String.raw`^${mark}(?:${numbered}|(?:\d{1,2}[.)][ \t]*)?\**${words}\**[ \t]*:?\**[ \t]*)$`, 'gim');
}

/** The texts after `Score:` in an aspect. If the reply was `cutOff` there, the number of an unfinished line may lack digits. */
function gradesIn(section: string, cutOff: boolean): string[] {
  const lines = [...section.matchAll(/^[ \t]*#{0,6}[ \t]*\**score\**[ \t]*:[ \t]*(.*)$/gim)];
  return lines.flatMap(({ index, 0: line, 1: grade }) =>
    cutOff && index + line.length === section.length ? [] : [grade.replace(/\*/g, '').trim()],
  );
}

/** The score in a text after `Score:`, null for N/A. */
function valueOf(grade: string, [, max]: Scale): number | null | 'wrong' {
  if (/^n\/a\.?(?:\s*\(.*\))?$/i.test(grade)) return null;
  const found = /^(\d{1,4}(?:\.\d{1,6})?)\.?(?:\s*\/\s*(\d{1,4})(?:\.0)?)?(?:\s*\(.*\))?$/.exec(grade);
  if (found === null) return 'wrong';
  const [, score, end] = found as unknown as [string, string, string | undefined];
  return end === undefined || Number(end) === max ? Number(score) : 'wrong';
}

/** The shares of the first and the second image, by the names of a winner in lower case. */
const winners: Readonly<Record<string, readonly [number, number]>> = {
  'image a': [1, 0],
  image_a: [1, 0],
  a: [1, 0],
  'image b': [0, 1],
  image_b: [0, 1],
  b: [0, 1],
  tie: [0.5, 0.5],
  equal: [0.5, 0.5],
  both: [0.5, 0.5],
  none: [0.5, 0.5],
};

function sharesOf(name: string): readonly [number, number] | null {
  const known = name.trim().toLowerCase();
  return Object.hasOwn(winners, known) ? winners[known] : null;
}

/**
 * The winner that a reply names. Several have to agree, and a name that is none of these leaves the reply without a winner unless it is
 * the form that the question itself shows. A reply that is a name alone counts if it was not `cutOff`: `A` may have begun a sentence.
 */
function parseWinner(text: string, cutOff: boolean): Parsed {
  const checked = answerOf(text, null);
  if (!checked.ok) return checked;
  const body = checked.body.replace(/```[\w-]*/g, ' ').trim();
  if (cutOff && !body.startsWith('{')) return cutShort(body);
  const alone = sharesOf(body.replace(/[*.`]/g, ''));
  if (alone !== null) return { ok: true, scores: alone };
  const named = winnersIn(body);
  const known = named.flatMap((name) => sharesOf(name) ?? []);
  if (named.length > 0 && known.length === 2 * named.length) {
    const same = named.every((_, i) => known[2 * i] === known[0]);
    if (same) return { ok: true, scores: known.slice(0, 2) };
    return unusable(body, 'its winners contradict each other');
  }
  return checked.open
    ? cutShort(body)
    : unusable(body, named.length === 0 ? 'no winner in it' : 'its winner is none of A, B and Tie');
}

/** The form of the reply as questions show it: a list of the choices. */
const choices = /^choose\b|\bor\b/i;

function winnersIn(text: string): string[] {
  const found: string[] = [];
  let at = text.indexOf('{');
  for (let tried = 0; at >= 0; tried++) {
    // The rest of the text may contradict the value found so far.
    if (tried === maxCandidates) return [];
    const { fields, end } = readLooseObject(text, at);
    found.push(...winnersOf(fields));
    at = text.indexOf('{', end ?? at + 1);
  }
  return found;
}

function winnersOf(fields: LooseFields): string[] {
  const own = (fields.get('winner') ?? []).flatMap((value) => {
    if (value.kind !== 'text') return ['other'];
    return choices.test(value.text) ? [] : [value.text];
  });
  return [...own, ...[...fields.values()].flat().flatMap(winnersWithin)];
}

function winnersWithin(value: LooseValue): string[] {
  if (value.kind === 'list') return value.items.flatMap(winnersWithin);
  return value.kind === 'object' ? winnersOf(value.fields) : [];
}
