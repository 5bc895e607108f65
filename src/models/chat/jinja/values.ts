/** Python's values as templates see them: how they print, which are true, which are equal. */

/** An error that jinja2 would raise, or something that is not supported here. The message says which. */
export class TemplateFailure extends Error {}

/** The value of a missing name or attribute; it prints nothing, and most other uses fail. */
export class Undefined {
  constructor(readonly what: string) {}

  fail(): TemplateFailure {
    return new TemplateFailure(`${this.what} is undefined`);
  }
}

/** Python's float; a plain number is an int. */
export class Float {
  constructor(readonly value: number) {}
}

export class Tuple {
  constructor(readonly items: readonly Value[]) {}
}

/** The result of `namespace()`: the only kind of value whose attributes can be set. */
export class Namespace {
  constructor(readonly attributes: Map<string, Value>) {}
}

export type NamedArguments = ReadonlyMap<string, Value>;
export type Callable = (positional: readonly Value[], named: NamedArguments) => Value;
export type Value =
  | Undefined
  | null
  | boolean
  | number
  | Float
  | string
  | readonly Value[]
  | Tuple
  | NamedArguments
  | Namespace
  | Callable;

/** The first that is there; None is. */
export function firstDefined(...values: readonly (Value | undefined)[]): Value | undefined {
  return values.find((value) => value !== undefined);
}

export function isList(value: Value): value is readonly Value[] {
  return Array.isArray(value);
}

export function isDict(value: Value): value is NamedArguments {
  return value instanceof Map;
}

/** JSON as Python reads it. */
export function fromJson(value: unknown): Value {
  if (value === null || typeof value === 'string' || typeof value === 'boolean') return value;
  if (typeof value === 'number') return Number.isInteger(value) ? value : new Float(value);
  if (Array.isArray(value)) return value.map(fromJson);
  if (typeof value === 'object') {
    return new Map(Object.entries(value).flatMap(([key, item]) => (item === undefined ? [] : [[key, fromJson(item)]])));
  }
  throw new TemplateFailure(`a ${typeof value} cannot be given to a template`);
}

/** Python's name of a value's type. */
export function typeName(value: Value): string {
  if (value === null) return 'NoneType';
  if (value instanceof Undefined) return 'Undefined';
  if (value instanceof Float) return 'float';
  if (value instanceof Tuple) return 'tuple';
  if (value instanceof Namespace) return 'Namespace';
  if (isList(value)) return 'list';
  if (isDict(value)) return 'dict';
  return { string: 'str', number: 'int', boolean: 'bool', function: 'function' }[
    typeof value as 'string' | 'number' | 'boolean' | 'function'
  ];
}

export function isTruthy(value: Value): boolean {
  if (value === null || value instanceof Undefined) return false;
  if (value instanceof Float) return value.value !== 0;
  if (typeof value === 'string' || isList(value)) return value.length > 0;
  if (value instanceof Tuple) return value.items.length > 0;
  if (isDict(value)) return value.size > 0;
  return value !== false && value !== 0;
}

/** A bool, int or float as a number; null for anything else. */
export function asNumber(value: Value): number | null {
  if (typeof value === 'number') return value;
  if (typeof value === 'boolean') return value ? 1 : 0;
  return value instanceof Float ? value.value : null;
}

export function equal(a: Value, b: Value): boolean {
  const [x, y] = [asNumber(a), asNumber(b)];
  if (x !== null || y !== null) return x === y;
  if (a instanceof Undefined) return b instanceof Undefined;
  if (a instanceof Tuple) return b instanceof Tuple && equal(a.items, b.items);
  if (isList(a)) return isList(b) && a.length === b.length && a.every((item, i) => equal(item, b[i]));
  if (isDict(a)) {
    if (!isDict(b) || a.size !== b.size) return false;
    return [...a].every(([key, item]) => b.has(key) && equal(item, b.get(key) as Value));
  }
  return a === b;
}

/** Below 0 where `a` comes first. Strings compare by code points. */
export function compare(a: Value, b: Value): number {
  const [x, y] = [asNumber(a), asNumber(b)];
  if (x !== null && y !== null) return x - y;
  if (typeof a === 'string' && typeof b === 'string') return compareText(a, b);
  if (a instanceof Tuple && b instanceof Tuple) return compare(a.items, b.items);
  if (isList(a) && isList(b)) {
    const at = a.findIndex((item, i) => i >= b.length || !equal(item, b[i]));
    if (at === -1) return a.length - b.length;
    return at >= b.length ? 1 : compare(a[at], b[at]);
  }
  for (const value of [a, b]) if (value instanceof Undefined) throw value.fail();
  throw new TemplateFailure(`'<' not supported between instances of '${typeName(a)}' and '${typeName(b)}'`);
}

export function compareText(a: string, b: string): number {
  const [left, right] = [codePoints(a), codePoints(b)];
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    const difference = codePoint(left[i]) - codePoint(right[i]);
    if (difference !== 0) return difference;
  }
  return left.length - right.length;
}

/** A string's characters as Python counts them. */
export function codePoints(text: string): string[] {
  return Array.from(text);
}

function codePoint(character: string): number {
  return character.codePointAt(0) ?? 0;
}

/** The items that a `for` loops over. */
export function iterate(value: Value): readonly Value[] {
  if (isList(value)) return value;
  if (value instanceof Tuple) return value.items;
  if (typeof value === 'string') return codePoints(value);
  if (isDict(value)) return [...value.keys()];
  if (value instanceof Undefined) return [];
  throw new TemplateFailure(`'${typeName(value)}' object is not iterable`);
}

/** Python's `str()`. */
export function str(value: Value): string {
  if (typeof value === 'string') return value;
  return value instanceof Undefined ? '' : repr(value);
}

function repr(value: Value): string {
  if (value === null) return 'None';
  if (typeof value === 'boolean') return value ? 'True' : 'False';
  if (typeof value === 'string') return quoted(value);
  if (typeof value === 'number') return integer(value);
  if (value instanceof Float) return float(value.value);
  if (isList(value)) return `[${value.map(repr).join(', ')}]`;
  if (value instanceof Tuple) return `(${value.items.map(repr).join(', ')}${value.items.length === 1 ? ',' : ''})`;
  if (isDict(value)) return `{${[...value].map(([key, item]) => `${repr(key)}: ${repr(item)}`).join(', ')}}`;
  if (value instanceof Undefined) return 'Undefined';
  throw new TemplateFailure(`a ${typeName(value)} cannot be printed`);
}

function integer(value: number): string {
  if (!Number.isSafeInteger(value)) throw new TemplateFailure('integers beyond 2^53 are not covered');
  return String(value);
}

/** Shortest digits as JavaScript finds them, in Python's notation. */
function float(value: number): string {
  if (!Number.isFinite(value)) return Number.isNaN(value) ? 'nan' : value > 0 ? 'inf' : '-inf';
  const [digits, power] = value.toExponential().split('e');
  const exponent = Number(power);
  if (value !== 0 && (exponent < -4 || exponent >= 16)) {
    return `${digits}e${exponent < 0 ? '-' : '+'}${String(Math.abs(exponent)).padStart(2, '0')}`;
  }
  const plain = Object.is(value, -0) ? '-0' : String(value);
  const [mantissa, small] = plain.split('e-');
  if (small !== undefined) return value.toFixed(mantissa.replace(/^-?\d\.?/, '').length + Number(small));
  return plain.includes('.') ? plain : `${plain}.0`;
}

const escapes: Readonly<Record<string, string>> = { '\\': '\\\\', '\n': '\\n', '\r': '\\r', '\t': '\\t' };

function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = codePoints(text).map((character) => {
    if (character === quote) return `\\${quote}`;
    const escape = escapes[character];
    if (escape !== undefined) return escape;
    if (character === ' ' || !/[\p{C}\p{Z}]/u.test(character)) return character;
    const code = codePoint(character);
    const [letter, width] = code < 0x100 ? ['x', 2] : code < 0x10000 ? ['u', 4] : ['U', 8];
    return `\\${letter}${code.toString(16).padStart(Number(width), '0')}`;
  });
  return `${quote}${body.join('')}${quote}`;
}

export interface JsonStyle {
  readonly ascii: boolean;
  readonly indent: string | null;
  readonly separators: readonly [item: string, key: string];
  readonly sorted: boolean;
}

/** Python's `json.dumps`. */
export function toJson(value: Value, style: JsonStyle, depth = 0): string {
  if (value === null) return 'null';
  if (typeof value === 'boolean' || typeof value === 'string') return jsonText(value, style.ascii);
  if (typeof value === 'number') return integer(value);
  if (value instanceof Float) return float(value.value);
  const inside = (items: readonly string[], open: string, close: string): string => {
    if (items.length === 0 || style.indent === null) return `${open}${items.join(style.separators[0])}${close}`;
    const line = `\n${style.indent.repeat(depth + 1)}`;
    return `${open}${line}${items.join(style.separators[0] + line)}\n${style.indent.repeat(depth)}${close}`;
  };
  if (isDict(value)) {
    const entries = style.sorted ? [...value].sort(([a], [b]) => compareText(a, b)) : [...value];
    const items = entries.map(
      ([key, item]) => `${jsonText(key, style.ascii)}${style.separators[1]}${toJson(item, style, depth + 1)}`,
    );
    return inside(items, '{', '}');
  }
  if (isList(value) || value instanceof Tuple) {
    const items = iterate(value).map((item) => toJson(item, style, depth + 1));
    return inside(items, '[', ']');
  }
  throw new TemplateFailure(`Object of type ${typeName(value)} is not JSON serializable`);
}

function jsonText(value: string | boolean, ascii: boolean): string {
  const text = JSON.stringify(value);
  if (!ascii) return text;
  return text.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Letters of a text, or items of a list, that a template may make: models read a few hundred thousand letters. */
const MOST_LENGTH = 8 * 2 ** 20;

/** Throws where a value would have more letters or items than a template may make. */
export function requireLength(length: number): void {
  if (length > MOST_LENGTH) throw new TemplateFailure(`it makes a value of more than ${MOST_LENGTH} letters or items`);
}

/** The value itself if it is no longer than that. */
export function requireShort<V extends Value>(value: V): V {
  if (typeof value === 'string' || isList(value)) requireLength(value.length);
  return value;
}
