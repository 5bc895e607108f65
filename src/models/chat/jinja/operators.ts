/** Python's operators between values. */
import { asNumber, compare, equal, Float, isList, requireLength, str, TemplateFailure, Tuple, typeName, Undefined, type Value } from './values.js'; // prettier-ignore

/** Arithmetic on two numbers; integers stay integers. */
function arithmetic(a: Value, b: Value, compute: (x: number, y: number) => number): Value | undefined {
  const [x, y] = [asNumber(a), asNumber(b)];
  if (x === null || y === null) return undefined;
  const result = compute(x, y);
  return a instanceof Float || b instanceof Float ? new Float(result) : result;
}

/** The divisor, which may not be 0. */
function nonzero(y: number): number {
  if (y === 0) throw new TemplateFailure('division by zero');
  return y;
}

function repeated(a: Value, b: Value): Value | undefined {
  const times = b instanceof Float ? null : asNumber(b);
  if (times === null) return undefined;
  if (typeof a === 'string' || isList(a)) requireLength(a.length * times);
  if (typeof a === 'string') return a.repeat(Math.max(0, times));
  if (isList(a)) return Array.from({ length: Math.max(0, times) }, () => a).flat(1);
  return undefined;
}

type Operation = (a: Value, b: Value) => Value | undefined;

/** Undefined where Python has a TypeError. */
const table: Readonly<Record<string, Operation>> = {
  '+': (a, b) => {
    if (typeof a === 'string' && typeof b === 'string') return a + b;
    if (isList(a) && isList(b)) return [...a, ...b];
    if (a instanceof Tuple && b instanceof Tuple) return new Tuple([...a.items, ...b.items]);
    return arithmetic(a, b, (x, y) => x + y);
  },
  '-': (a, b) => arithmetic(a, b, (x, y) => x - y),
  '*': (a, b) => repeated(a, b) ?? repeated(b, a) ?? arithmetic(a, b, (x, y) => x * y),
  '/': (a, b) => {
    const result = arithmetic(a, b, (x, y) => x / nonzero(y));
    return typeof result === 'number' ? new Float(result) : result;
  },
  '//': (a, b) => arithmetic(a, b, (x, y) => Math.floor(x / nonzero(y))),
  '%': (a, b) => {
    if (typeof a === 'string') throw new TemplateFailure("formatting with '%' is not covered");
    return arithmetic(a, b, (x, y) => x - Math.floor(x / nonzero(y)) * y);
  },
  '**': (a, b) => {
    const result = arithmetic(a, b, (x, y) => x ** y);
    return typeof result === 'number' && !Number.isInteger(result) ? new Float(result) : result;
  },
  '~': (a, b) => str(a) + str(b),
  '==': (a, b) => equal(a, b),
  '!=': (a, b) => !equal(a, b),
  '<': (a, b) => compare(a, b) < 0,
  '<=': (a, b) => compare(a, b) <= 0,
  '>': (a, b) => compare(a, b) > 0,
  '>=': (a, b) => compare(a, b) >= 0,
};

export function operators(operator: string, a: Value, b: Value): Value {
  const operation = Object.hasOwn(table, operator) ? table[operator] : undefined;
  if (operation === undefined) throw new TemplateFailure(`the operator '${operator}' is not covered`);
  const result = operation(a, b);
  if (result !== undefined) return result;
  for (const value of [a, b]) if (value instanceof Undefined) throw value.fail();
  throw new TemplateFailure(`unsupported operand type(s) for ${operator}: '${typeName(a)}' and '${typeName(b)}'`);
}
