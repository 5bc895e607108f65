/** Methods of Python's `str`. */
import {
  Tuple,
  asNumber,
  iterate,
  codePoints,
  TemplateFailure,
  typeName,
  type NamedArguments,
  type Value,
} from './values.js';

/** White space according to Python's `str.isspace`; JavaScript's `\s` includes U+FEFF and lacks other characters. */
const SPACE = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000';
const spaces = new RegExp(`[${SPACE}]+`, 'gu');
const leading = new RegExp(`^[${SPACE}]+`, 'u');
const trailing = new RegExp(`[${SPACE}]+$`, 'u');
/** The places where `str.splitlines` splits. */
const lineBreak = /\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]/g;

type Method = (text: string, args: readonly Value[], named: NamedArguments) => Value;

function textOf(value: Value | undefined, method: string): string {
  if (typeof value === 'string') return value;
  throw new TemplateFailure(`${method}() takes a string, not ${value === undefined ? 'nothing' : typeName(value)}`);
}

/** An argument that may be absent or None. */
function optional(value: Value | undefined, method: string): string | null {
  return value === undefined || value === null ? null : textOf(value, method);
}

function count(value: Value | undefined, absent: number): number {
  return value === undefined || value === null ? absent : (asNumber(value) ?? absent);
}

export function strip(text: string, characters: string | null, sides: 'both' | 'left' | 'right'): string {
  if (characters === null) {
    const left = sides === 'right' ? text : text.replace(leading, '');
    return sides === 'left' ? left : left.replace(trailing, '');
  }
  const stripped = new Set(codePoints(characters));
  const all = codePoints(text);
  let [from, to] = [0, all.length];
  if (sides !== 'right') while (from < to && stripped.has(all[from])) from++;
  if (sides !== 'left') while (to > from && stripped.has(all[to - 1])) to--;
  return all.slice(from, to).join('');
}

function split(text: string, separator: string | null, most: number): string[] {
  if (separator === '') throw new TemplateFailure('empty separator');
  if (separator !== null) {
    const parts = text.split(separator);
    return most < 0 || parts.length <= most + 1 ? parts : [...parts.slice(0, most), parts.slice(most).join(separator)];
  }
  const out: string[] = [];
  let rest = text.replace(leading, '');
  while (rest !== '') {
    const [gap] = [...rest.matchAll(spaces)];
    if (gap === undefined || (most >= 0 && out.length >= most)) {
      out.push(most >= 0 && out.length >= most ? rest : rest.replace(trailing, ''));
      break;
    }
    out.push(rest.slice(0, gap.index));
    rest = rest.slice(gap.index + gap[0].length);
  }
  return out;
}

function rsplit(text: string, separator: string | null, most: number): string[] {
  if (most < 0) return split(text, separator, most);
  if (separator === null) throw new TemplateFailure('rsplit() without a separator is not covered');
  if (separator === '') throw new TemplateFailure('empty separator');
  const parts = text.split(separator);
  const kept = Math.max(0, parts.length - most);
  return kept <= 1 ? parts : [parts.slice(0, kept).join(separator), ...parts.slice(kept)];
}

export function replace(text: string, from: string, to: string, most: number): string {
  const parts = from === '' ? ['', ...codePoints(text), ''] : text.split(from);
  if (most < 0 || parts.length <= most + 1) return parts.join(to);
  return [...parts.slice(0, most), parts.slice(most).join(from)].join(to);
}

function affixes(value: Value | undefined, method: string): string[] {
  return (value instanceof Tuple ? value.items : [value]).map((item) => textOf(item, method));
}

export function capitalize(text: string): string {
  const [first, ...rest] = codePoints(text);
  return first === undefined ? '' : first.toUpperCase() + rest.join('').toLowerCase();
}

/** How many characters stand before a place in UTF-16 units. */
function pointsBefore(text: string, at: number): number {
  return at < 0 ? -1 : codePoints(text.slice(0, at)).length;
}

function wholly(pattern: RegExp): Method {
  return (text) => pattern.test(text);
}

const covered: Readonly<Record<string, Method>> = {
  strip: (text, [characters]) => strip(text, optional(characters, 'strip'), 'both'),
  lstrip: (text, [characters]) => strip(text, optional(characters, 'lstrip'), 'left'),
  rstrip: (text, [characters]) => strip(text, optional(characters, 'rstrip'), 'right'),
  split: (text, [separator, most], named) =>
    split(text, optional(separator ?? named.get('sep'), 'split'), count(most ?? named.get('maxsplit'), -1)),
  rsplit: (text, [separator, most], named) =>
    rsplit(text, optional(separator ?? named.get('sep'), 'rsplit'), count(most ?? named.get('maxsplit'), -1)),
  splitlines: (text, args) => {
    if (args.length > 0) throw new TemplateFailure('splitlines() with an argument is not covered');
    const lines = text.split(lineBreak);
    return lines.at(-1) === '' ? lines.slice(0, -1) : lines;
  },
  startswith: (text, [prefix]) => affixes(prefix, 'startswith').some((item) => text.startsWith(item)),
  endswith: (text, [suffix]) => affixes(suffix, 'endswith').some((item) => text.endsWith(item)),
  removeprefix: (text, [prefix]) => {
    const found = textOf(prefix, 'removeprefix');
    return text.startsWith(found) ? text.slice(found.length) : text;
  },
  removesuffix: (text, [suffix]) => {
    const found = textOf(suffix, 'removesuffix');
    return found !== '' && text.endsWith(found) ? text.slice(0, -found.length) : text;
  },
  replace: (text, [from, to, most], named) =>
    replace(text, textOf(from, 'replace'), textOf(to, 'replace'), count(most ?? named.get('count'), -1)),
  join: (text, [items]) =>
    iterate(items ?? null)
      .map((item) => textOf(item, 'join'))
      .join(text),
  upper: (text) => text.toUpperCase(),
  lower: (text) => text.toLowerCase(),
  capitalize,
  find: (text, [part]) => pointsBefore(text, text.indexOf(textOf(part, 'find'))),
  rfind: (text, [part]) => pointsBefore(text, text.lastIndexOf(textOf(part, 'rfind'))),
  count: (text, [part]) => {
    const sought = textOf(part, 'count');
    return sought === '' ? codePoints(text).length + 1 : text.split(sought).length - 1;
  },
  isspace: wholly(new RegExp(`^[${SPACE}]+$`, 'u')),
  isalpha: wholly(/^\p{L}+$/u),
};

/** Methods that Python has, too. */
const others =
  'casefold center encode expandtabs format format_map index isalnum isascii isdecimal isdigit isidentifier islower isnumeric isprintable istitle isupper ljust maketrans partition rindex rjust rpartition swapcase title translate zfill';
const notCovered: ReadonlySet<string> = new Set(others.split(' '));

/** A method bound to its string; undefined if Python's strings have none with that name. Throws for a method that is not supported. */
export function textMethod(text: string, name: string): Value | undefined {
  const method = Object.hasOwn(covered, name) ? covered[name] : undefined;
  if (method !== undefined) return (args, named) => method(text, args, named);
  if (notCovered.has(name)) throw new TemplateFailure(`the method ${name} of strings is not covered`);
  return undefined;
}
