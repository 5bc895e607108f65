/** jinja2's filters and tests. */
import { capitalize, replace, strip } from './text_methods.js';
import {
  asNumber,
  compare,
  equal,
  Float,
  isDict,
  isList,
  iterate,
  codePoints,
  firstDefined,
  requireLength,
  str,
  TemplateFailure,
  toJson,
  isTruthy,
  Tuple,
  typeName,
  Undefined,
  type NamedArguments,
  type Value,
} from './values.js';

/** Arguments by place or by name, as Python binds them. */
class Arguments {
  constructor(
    readonly positional: readonly Value[],
    readonly named: NamedArguments,
  ) {}

  get(place: number, name: string): Value | undefined {
    return firstDefined(this.positional[place], this.named.get(name));
  }

  flag(place: number, name: string, absent = false): boolean {
    const value = this.get(place, name);
    return value === undefined ? absent : isTruthy(value);
  }

  text(place: number, name: string, absent: string): string {
    const value = this.get(place, name);
    return value === undefined ? absent : str(value);
  }
}

type Filter = (value: Value, args: Arguments) => Value;
export type Test = (value: Value, other: Value) => boolean;

function size(value: Value): number {
  if (typeof value === 'string') return codePoints(value).length;
  if (isList(value)) return value.length;
  if (value instanceof Tuple) return value.items.length;
  if (isDict(value)) return value.size;
  if (value instanceof Undefined) return 0;
  throw new TemplateFailure(`object of type '${typeName(value)}' has no len()`);
}

/** An item or attribute of a value, as `attribute=` of filters names it: a key, an index, or several joined by dots. */
function attributeOf(value: Value, path: Value | undefined): Value {
  if (path === undefined) return value;
  return str(path)
    .split('.')
    .reduce<Value>((at, name) => {
      if (at instanceof Undefined) throw at.fail();
      const found = isDict(at) ? at.get(name) : /^\d+$/.test(name) ? iterate(at)[Number(name)] : undefined;
      return firstDefined(found, new Undefined(`'${name}' of a ${typeName(at)}`)) as Value;
    }, value);
}

/** Strings are compared without case where jinja2 does so by default. */
function folded(value: Value): Value {
  return typeof value === 'string' ? value.toLowerCase() : value;
}

function sorted(items: readonly Value[], key: (item: Value) => Value, reverse: boolean): Value[] {
  const sign = reverse ? -1 : 1;
  return items.map((item) => [key(item), item] as const).sort(([a], [b]) => sign * compare(a, b)).map(([, item]) => item); // prettier-ignore
}

/** Items that a test keeps; of `attribute` where one is named. */
function selecting(kept: boolean, byAttribute: boolean): Filter {
  return (value, { positional }) => {
    const [attribute, ...rest] = byAttribute ? positional : [undefined, ...positional];
    const [name, other] = rest;
    const test = name === undefined ? isTruthy : testNamed(str(name));
    return iterate(value).filter((item) => test(attributeOf(item, attribute), other ?? null) === kept);
  };
}

function spaces(count: number): string {
  requireLength(count * 64);
  return ' '.repeat(count);
}

const asJson: Filter = (value, args) => {
  const indent = args.get(1, 'indent') ?? null;
  const separators = args.get(2, 'separators') ?? null;
  const [item, key] = separators === null ? [] : iterate(separators).map(str);
  const width = asNumber(indent);
  return toJson(value, {
    ascii: args.flag(0, 'ensure_ascii'),
    indent: indent === null ? null : width === null ? str(indent) : spaces(width),
    separators: [item ?? (indent === null ? ', ' : ','), key ?? ': '],
    sorted: args.flag(3, 'sort_keys'),
  });
};

const orElse: Filter = (value, args) => {
  const absent = value instanceof Undefined || (args.flag(1, 'boolean') && !isTruthy(value));
  return absent ? (firstDefined(args.get(0, 'default_value'), '') as Value) : value;
};

const toInteger: Filter = (value, args) => {
  const number = asNumber(value);
  if (number !== null) return Math.trunc(number);
  if (typeof value === 'string' && /^\s*[+-]?\d+\s*$/.test(value)) return Number(value);
  if (typeof value === 'string' && /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(value)) return Math.trunc(Number(value)); // prettier-ignore
  return firstDefined(args.get(0, 'default'), 0) as Value;
};

const toFloat: Filter = (value, args) => {
  const number = asNumber(value);
  if (number !== null) return new Float(number);
  if (typeof value === 'string' && /^\s*[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?\s*$/i.test(value)) {
    return new Float(Number(value));
  }
  return firstDefined(args.get(0, 'default'), new Float(0)) as Value;
};

/** Words begin after white space, hyphens and opening brackets. */
function titled(text: string): string {
  return text
    .split(/([-\s({[<]+)/)
    .map(capitalize)
    .join('');
}

const indented: Filter = (value, args) => {
  const width = args.get(0, 'width') ?? 4;
  const space = typeof width === 'string' ? width : spaces(asNumber(width) ?? 4);
  const [first, blank] = [args.flag(1, 'first'), args.flag(2, 'blank')];
  return str(value)
    .split('\n')
    .map((line, i) => ((i === 0 ? first : blank || line !== '') ? space + line : line))
    .join('\n');
};

const mapped: Filter = (value, args) => {
  const attribute = args.named.get('attribute');
  if (attribute !== undefined) {
    const absent = args.named.get('default');
    return iterate(value).map((item) => {
      const found = attributeOf(item, attribute);
      return found instanceof Undefined && absent !== undefined ? absent : found;
    });
  }
  const [name, ...rest] = args.positional;
  if (name === undefined) throw new TemplateFailure('map requires a filter argument');
  const filter = filterNamed(str(name));
  return iterate(value).map((item) => filter(item, new Arguments(rest, args.named)));
};

const length: Filter = (value) => size(value);
const filters: Readonly<Record<string, Filter>> = {
  abs: (value) => {
    const number = asNumber(value);
    if (number === null) throw new TemplateFailure(`bad operand type for abs(): '${typeName(value)}'`);
    return value instanceof Float ? new Float(Math.abs(number)) : Math.abs(number);
  },
  capitalize: (value) => capitalize(str(value)),
  count: length,
  d: orElse,
  default: orElse,
  dictsort: (value, args) => {
    if (!isDict(value)) throw new TemplateFailure(`dictsort takes a dict, not ${typeName(value)}`);
    const at = args.text(1, 'by', 'key') === 'value' ? 1 : 0;
    const items = [...value].map((pair) => new Tuple(pair));
    const exact = args.flag(0, 'case_sensitive');
    return sorted(items, (item) => (exact ? (item as Tuple).items[at] : folded((item as Tuple).items[at])), args.flag(2, 'reverse')); // prettier-ignore
  },
  first: (value) => firstDefined(iterate(value)[0], new Undefined('the first item of an empty sequence')) as Value,
  float: toFloat,
  indent: indented,
  int: toInteger,
  items: (value) => {
    if (value instanceof Undefined) return [];
    if (!isDict(value)) throw new TemplateFailure('Can only get item pairs from a mapping.');
    return [...value].map((pair) => new Tuple(pair));
  },
  join: (value, args) => {
    const attribute = args.get(1, 'attribute');
    return iterate(value).map((item) => str(attributeOf(item, attribute))).join(args.text(0, 'd', '')); // prettier-ignore
  },
  last: (value) => firstDefined(iterate(value).at(-1), new Undefined('the last item of an empty sequence')) as Value,
  length,
  list: (value) => [...iterate(value)],
  lower: (value) => str(value).toLowerCase(),
  map: mapped,
  reject: selecting(false, false),
  rejectattr: selecting(false, true),
  replace: (value, args) =>
    replace(str(value), args.text(0, 'old', ''), args.text(1, 'new', ''), asNumber(args.get(2, 'count') ?? null) ?? -1),
  reverse: (value) =>
    typeof value === 'string' ? codePoints(value).reverse().join('') : [...iterate(value)].reverse(),
  safe: (value) => value,
  select: selecting(true, false),
  selectattr: selecting(true, true),
  sort: (value, args) => {
    const attribute = args.get(2, 'attribute');
    const exact = args.flag(1, 'case_sensitive');
    const key = (item: Value): Value => (exact ? attributeOf(item, attribute) : folded(attributeOf(item, attribute)));
    return sorted(iterate(value), key, args.flag(0, 'reverse'));
  },
  string: (value) => str(value),
  title: (value) => titled(str(value)),
  tojson: asJson,
  trim: (value, args) => {
    const characters = args.get(0, 'chars') ?? null;
    return strip(str(value), characters === null ? null : str(characters), 'both');
  },
  unique: (value, args) => {
    const exact = args.flag(0, 'case_sensitive');
    const attribute = args.get(1, 'attribute');
    const seen: Value[] = [];
    return iterate(value).filter((item) => {
      const key = exact ? attributeOf(item, attribute) : folded(attributeOf(item, attribute));
      const met = seen.some((other) => equal(other, key));
      if (!met) seen.push(key);
      return !met;
    });
  },
  upper: (value) => str(value).toUpperCase(),
};

function filterNamed(name: string): Filter {
  if (Object.hasOwn(filters, name)) return filters[name];
  throw new TemplateFailure(`the filter '${name}' is not covered; covered: ${Object.keys(filters).join(', ')}`);
}

export function applyFilter(name: string, value: Value, positional: readonly Value[], named: NamedArguments): Value {
  return filterNamed(name)(value, new Arguments(positional, named));
}

/** Whether `other` holds `value`. */
export function contains(other: Value, value: Value): boolean {
  if (typeof other === 'string') {
    if (typeof value === 'string') return other.includes(value);
    throw new TemplateFailure(`'in <string>' requires string as left operand, not ${typeName(value)}`);
  }
  if (isDict(other)) return typeof value === 'string' && other.has(value);
  return iterate(other).some((item) => equal(item, value));
}

function remainder(value: Value, test: string): number {
  const number = asNumber(value);
  if (number === null) throw new TemplateFailure(`'${test}' takes a number, not ${typeName(value)}`);
  return Math.abs(number % 2);
}

const isEqual: Test = equal;
const iterable: Test = (value) => typeof value === 'string' || isList(value) || isDict(value) || value instanceof Tuple || value instanceof Undefined; // prettier-ignore
const tests: Readonly<Record<string, Test>> = {
  '==': isEqual,
  '!=': (value, other) => !equal(value, other),
  '<': (value, other) => compare(value, other) < 0,
  '<=': (value, other) => compare(value, other) <= 0,
  '>': (value, other) => compare(value, other) > 0,
  '>=': (value, other) => compare(value, other) >= 0,
  boolean: (value) => typeof value === 'boolean',
  callable: (value) => typeof value === 'function',
  defined: (value) => !(value instanceof Undefined),
  eq: isEqual,
  equalto: isEqual,
  even: (value) => remainder(value, 'even') === 0,
  false: (value) => value === false,
  float: (value) => value instanceof Float,
  ge: (value, other) => compare(value, other) >= 0,
  gt: (value, other) => compare(value, other) > 0,
  in: (value, other) => contains(other, value),
  integer: (value) => typeof value === 'number',
  // Python has Undefined answer both questions with yes.
  iterable,
  le: (value, other) => compare(value, other) <= 0,
  lower: (value) => /\p{Cased}/u.test(str(value)) && str(value) === str(value).toLowerCase(),
  lt: (value, other) => compare(value, other) < 0,
  mapping: (value) => isDict(value),
  ne: (value, other) => !equal(value, other),
  none: (value) => value === null,
  number: (value) => asNumber(value) !== null,
  odd: (value) => remainder(value, 'odd') === 1,
  sequence: iterable,
  string: (value) => typeof value === 'string',
  true: (value) => value === true,
  undefined: (value) => value instanceof Undefined,
  upper: (value) => /\p{Cased}/u.test(str(value)) && str(value) === str(value).toUpperCase(),
};

export function testNamed(name: string): Test {
  if (Object.hasOwn(tests, name)) return tests[name];
  throw new TemplateFailure(`the test '${name}' is not covered; covered: ${Object.keys(tests).join(', ')}`);
}
