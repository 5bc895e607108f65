/**
 * The filter that a person writes to choose runs: words that their names contain, and comparisons of columns and settings, all of which have to hold:
 * `rl state=running algorithm.kl_coeff<=3e-4 policy.model~emu "data.dir=my data"`.
 */
import { nearest } from '../core/nearest.js';
import { badRequest } from '../http/refusal.js';

type Operator = '!=' | '<=' | '>=' | '=' | '<' | '>' | '~';

export interface Condition {
  /** Null for a word that the name has to contain. */
  readonly key: string | null;
  readonly operator: Operator;
  readonly value: string;
}

/** Raises Refusal 400 for a quotation without an end. Keys are resolved by `resolveKey`. */
export function parseFilter(text: string): Condition[] {
  return wordsOf(text).map((word) => {
    const found = /^([^\s!<>=~]+)(!=|<=|>=|=|<|>|~)(.*)$/s.exec(word);
    if (found === null) return { key: null, operator: '~', value: word };
    return { key: found[1], operator: found[2] as Operator, value: found[3] };
  });
}

function wordsOf(text: string): string[] {
  const words: string[] = [];
  let word: string | null = null;
  let quoted = false;
  for (const letter of text) {
    if (letter === '"') {
      quoted = !quoted;
      word ??= '';
    } else if (/\s/.test(letter) && !quoted) {
      if (word !== null) words.push(word);
      word = null;
    } else {
      word = (word ?? '') + letter;
    }
  }
  if (quoted) throw badRequest('The filter has a quotation mark (") without a second one.', 'filter');
  if (word !== null) words.push(word);
  return words;
}

/**
 * The key that a person means: an exact match, or the only one that ends with what was written (`kl_coeff` for `algorithm.kl_coeff`). Raises Refusal
 * 400 with the candidates.
 */
export function resolveKey(written: string, keys: readonly string[]): string {
  if (keys.includes(written)) return written;
  const ending = keys.filter((key) => key.endsWith(`.${written}`));
  if (ending.length === 1) return ending[0];
  if (ending.length > 1) {
    throw badRequest(`'${written}' may be any of ${ending.slice(0, 8).join(', ')}; write one of them.`, 'filter');
  }
  const ends = keys.map((key) => key.slice(key.lastIndexOf('.') + 1));
  const close = nearest(written, keys) ?? keys[ends.indexOf(nearest(written, ends) ?? '')] ?? null;
  throw badRequest(
    `No run has a column or setting '${written}'${close === null ? '.' : `; did you mean '${close}'?`}`,
    'filter',
  );
}

/** Whether a value satisfies a condition: of a list, any item, or every item for `!=`. A missing value satisfies only `!=`. */
export function matchesCondition(value: unknown, condition: Omit<Condition, 'key'>): boolean {
  const { operator, value: wanted } = condition;
  if (Array.isArray(value) && value.length > 0 && !wanted.startsWith('[')) {
    const fits = (one: unknown): boolean => matchesCondition(one, condition);
    return operator === '!=' ? value.every(fits) : value.some(fits);
  }
  const text = textOf(value);
  if (value === undefined) return operator === '!=';
  const [a, b] = [numberOf(value), wanted.trim() === '' ? NaN : Number(wanted)];
  const numeric = a !== null && !Number.isNaN(b);
  switch (operator) {
    case '=':
      return numeric ? a === b : text === wanted;
    case '!=':
      return numeric ? a !== b : text !== wanted;
    case '~':
      return text.toLowerCase().includes(wanted.toLowerCase());
    case '<':
    case '<=':
    case '>':
    case '>=':
      return operatorHolds(
        operator,
        numeric ? a - b : value === null ? NaN : text < wanted ? -1 : text > wanted ? 1 : 0,
      );
  }
}

function operatorHolds(operator: '<' | '<=' | '>' | '>=', difference: number): boolean {
  if (operator === '<') return difference < 0;
  if (operator === '<=') return difference <= 0;
  return operator === '>' ? difference > 0 : difference >= 0;
}

/** A value in the form that a person writes: text as it is, anything else as JSON. */
export function textOf(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function numberOf(value: unknown): number | null {
  return typeof value === 'number' ? value : null;
}

/** Orders the values of a column: numbers, then text, then missing values last in either direction. */
export function ordering(descending: boolean): (a: unknown, b: unknown) => number {
  const sign = descending ? -1 : 1;
  return (a, b) => {
    const [x, y] = [typeRank(a), typeRank(b)];
    if (x !== y) return x - y;
    if (x === 0) return sign * ((a as number) - (b as number));
    if (x === 2) return 0;
    const [s, t] = [textOf(a), textOf(b)];
    return s === t ? 0 : s < t ? -sign : sign;
  };
}

function typeRank(value: unknown): 0 | 1 | 2 {
  if (value === null || value === undefined) return 2;
  return typeof value === 'number' ? 0 : 1;
}
