/** Names that every template of transformers finds. */
import { asNumber, Float, isDict, iterate, Namespace, firstDefined, str, TemplateFailure, Tuple, type Callable, type NamedArguments, type Value } from './values.js'; // prettier-ignore

const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December']; // prettier-ignore

/** Python's `strftime` of the local time, in the C locale. Throws for a directive that is not covered. */
export function strftime(date: Date, format: string): string {
  const two = (value: number): string => String(value).padStart(2, '0');
  const hour = date.getHours() % 12 || 12;
  const directives: Readonly<Record<string, string>> = {
    A: weekdays[date.getDay()],
    a: weekdays[date.getDay()].slice(0, 3),
    B: months[date.getMonth()],
    b: months[date.getMonth()].slice(0, 3),
    d: two(date.getDate()),
    H: two(date.getHours()),
    I: two(hour),
    M: two(date.getMinutes()),
    m: two(date.getMonth() + 1),
    p: date.getHours() < 12 ? 'AM' : 'PM',
    S: two(date.getSeconds()),
    Y: String(date.getFullYear()),
    y: two(date.getFullYear() % 100),
    '%': '%',
    '-d': String(date.getDate()),
    '-H': String(date.getHours()),
    '-I': String(hour),
    '-m': String(date.getMonth() + 1),
    F: `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`,
    T: `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`,
  };
  return format.replace(/%(-?.?)/gsu, (found, directive: string) => {
    const value = directives[directive];
    if (value === undefined) throw new TemplateFailure(`'${found}' of strftime_now is not covered`);
    return value;
  });
}

function pairs(value: Value | undefined): [string, Value][] {
  if (value === undefined) return [];
  if (isDict(value)) return [...value];
  return iterate(value).map((pair) => {
    const [key, item] = iterate(pair);
    return [str(key), item];
  });
}

function merged([first]: readonly Value[], named: NamedArguments): Map<string, Value> {
  return new Map([...pairs(first), ...named]);
}

function range(args: readonly Value[]): number[] {
  const numbers = args.map((value) => {
    const number = value instanceof Float ? null : asNumber(value);
    if (number === null) throw new TemplateFailure('range() takes integers');
    return number;
  });
  const [start, stop, step] = numbers.length === 1 ? [0, numbers[0], 1] : [numbers[0], numbers[1], numbers[2] ?? 1];
  if (step === 0) throw new TemplateFailure('range() arg 3 must not be zero');
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > 100_000) throw new TemplateFailure('Range too big. The sandbox blocks ranges larger than 100000.');
  return Array.from({ length }, (_, i) => start + i * step);
}

export function globals(now: () => Date): ReadonlyMap<string, Value> {
  const functions: Record<string, Callable> = {
    dict: merged,
    namespace: (args, named) => new Namespace(merged(args, named)),
    raise_exception: ([message]) => {
      throw new TemplateFailure(str(message ?? ''));
    },
    range,
    strftime_now: ([format]) => strftime(now(), str(format ?? '')),
  };
  const constants = { true: true, True: true, false: false, False: false, none: null, None: null };
  return new Map<string, Value>([...Object.entries(constants), ...Object.entries(functions)]);
}

/** Names that jinja2 knows, and this program does not. */
export const missingGlobals: ReadonlySet<string> = new Set(['varargs', 'kwargs', 'self', 'cycler', 'joiner', 'lipsum']);

/** Methods of dicts that change nothing. */
export const dictMethods: Readonly<Record<string, (dict: NamedArguments) => Callable>> = {
  get:
    (dict) =>
    ([key, absent]) =>
      firstDefined(typeof key === 'string' ? dict.get(key) : undefined, absent, null) as Value,
  items: (dict) => () => [...dict].map((pair) => new Tuple(pair)),
  keys: (dict) => () => [...dict.keys()],
  values: (dict) => () => [...dict.values()],
};
