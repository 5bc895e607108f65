/**
 * Renders chat templates as Python's jinja2 does. `@huggingface/jinja` evaluates them. This module corrects or rejects
 * the cases in which it silently differs from Python. It changes the package's classes, so only the renderer's own
 * process loads it.
 */
import * as jinja from '@huggingface/jinja';
import type { Node } from './syntax.js';

/** A value of the package: `type` is `StringValue`, `ArrayValue`, … */
interface Value {
  readonly type: string;
  readonly value: unknown;
  __bool__(): { readonly value: boolean };
}

type Callable = (args: readonly Value[], scope: Scope) => Value;

interface Scope {
  readonly variables: Map<string, Value>;
  readonly tests: Map<string, (value: Value, other: Value) => boolean>;
  set(name: string, value: unknown): Value;
  setVariable(name: string, value: Value): void;
  lookupVariable(name: string): Value;
}

interface Interpreter {
  evaluate(node: Node | undefined, scope: Scope): Value;
}

/** The package's own declarations cannot be resolved from a module. */
const library = jinja as unknown as {
  readonly Environment: new (parent?: Scope) => Scope;
  readonly Interpreter: new (scope: Scope) => Interpreter & {
    applyFilter(operand: Value, filter: Node, scope: Scope): Value;
  };
};

/** Characters of a text, items of a list: no prompt needs more, and one huge allocation could not be ended at the memory limit. */
const MAX_LENGTH = 8 * 2 ** 20;
/** The sandbox of jinja2 allows no longer range. */
const MAX_RANGE = 100_000;

/** White space of Python's `str.isspace`. JavaScript's includes U+FEFF and lacks others. */
const SPACES = new Set('\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a'); // prettier-ignore

/** Makes a value of the package. */
const valueOf = (value: unknown): Value => {
  const scope = new library.Environment();
  return scope.set('it', value);
};
const isText = (value: Value): value is Value & { readonly value: string } => value.type === 'StringValue';
const isList = (value: Value): value is Value & { readonly value: readonly Value[] } =>
  value.type === 'ArrayValue' || value.type === 'TupleValue';
const isDict = (value: Value): value is Value & { readonly value: ReadonlyMap<string, Value> } =>
  value.type === 'ObjectValue';
const isAbsent = ({ type }: Value): boolean => type === 'UndefinedValue';
const numeric = (value: Value): number | null =>
  ['IntegerValue', 'FloatValue', 'BooleanValue'].includes(value.type) ? Number(value.value) : null;
const isInteger = ({ type }: Value): boolean => type === 'IntegerValue';

function strip(text: string, characters: Value | undefined, sides: 'both' | 'left' | 'right'): string {
  if (characters !== undefined && characters.type !== 'NullValue' && !isText(characters)) {
    throw new Error('strip takes a string');
  }
  const stripped = characters !== undefined && isText(characters) ? new Set(characters.value) : SPACES;
  const all = [...text];
  let [from, to] = [0, all.length];
  if (sides !== 'right') while (from < to && stripped.has(all[from])) from++;
  if (sides !== 'left') while (to > from && stripped.has(all[to - 1])) to--;
  return all.slice(from, to).join('');
}

const capitalized = ([first = '', ...rest]: string): string => first.toUpperCase() + rest.join('').toLowerCase();

/** Python's methods of strings in place of the package's, which ignore arguments or count UTF-16 units. */
function correctStrings(): void {
  const prototype = Object.getPrototypeOf(valueOf('')) as object;
  const own = Object.getOwnPropertyDescriptor(prototype, 'builtins')!;
  const method = (call: (characters?: Value) => string): Value =>
    Object.assign(
      valueOf(() => null),
      { value: ([characters]: readonly Value[]) => valueOf(call(characters)) },
    );
  Object.defineProperty(prototype, 'builtins', {
    get(this: { readonly value: string }) {
      const methods = own.get!.call(this) as Map<string, Value>;
      return methods
        .set('capitalize', method(() => capitalized(this.value)))
        // A word begins after any character other than a letter.
        .set('title', method(() => this.value.replace(/\p{L}+/gu, capitalized)))
        .set('strip', method((characters) => strip(this.value, characters, 'both')))
        .set('lstrip', method((characters) => strip(this.value, characters, 'left')))
        .set('rstrip', method((characters) => strip(this.value, characters, 'right')))
        .set('length', valueOf(/[\ud800-\udfff]/.test(this.value) ? [...this.value].length : this.value.length)); // prettier-ignore
    },
  });
}

function equal(a: Value, b: Value): boolean {
  const [x, y] = [numeric(a), numeric(b)];
  if (x !== null || y !== null) return x === y;
  if (a.type !== b.type) return false;
  if (isList(a) && isList(b)) return a.value.length === b.value.length && a.value.every((item, i) => equal(item, b.value[i])); // prettier-ignore
  if (!isDict(a) || !isDict(b)) return a.value === b.value;
  return a.value.size === b.value.size && [...a.value].every(([key, item]) => b.value.has(key) && equal(item, b.value.get(key)!)); // prettier-ignore
}

/**
 * The printed form of a value. Raises for lists and dicts: Python prints its own notation, on which no template should
 * rely.
 */
function printed(value: Value): string {
  if (isText(value)) return value.value;
  if (isInteger(value) && Number.isSafeInteger(value.value)) return String(value.value);
  if (value.type === 'FloatValue' && /^-?(?!0\.0000)\d{1,15}(\.\d+)?$/.test(String(value.value))) {
    return Number.isInteger(value.value) ? `${String(value.value)}.0` : String(value.value);
  }
  if (value.type === 'BooleanValue') return value.value === true ? 'True' : 'False';
  if (value.type === 'NullValue') return 'None';
  if (isAbsent(value)) return '';
  throw new Error(`it prints a value of type ${value.type}; allowed: text and simple numbers`);
}

/** A value in the place of a node that has been evaluated. */
const known = (value: Value): Node => ({ type: 'Known', known: value });
const silent: ReadonlySet<string> = new Set(['Set', 'Macro', 'Comment']);
/** Filters and tests that the package applies otherwise than Python does. */
const refusedFilters: ReadonlySet<unknown> = new Set(['title', 'unique']);
const refusedTests: readonly string[] = ['lower', 'upper', 'number', 'float'];

class PythonInterpreter extends library.Interpreter {
  #leaving: 'Break' | 'Continue' | null = null;

  override evaluate(node: Node | undefined, scope: Scope): Value {
    const value = this.#evaluated(node, scope);
    if ((isText(value) || isList(value)) && value.value.length > MAX_LENGTH) {
      throw new Error(`it makes a value of more than ${MAX_LENGTH} characters or items`);
    }
    return value;
  }

  #evaluated(node: Node | undefined, scope: Scope): Value {
    if (node === undefined) return super.evaluate(node, scope);
    switch (node.type) {
      case 'Known':
        return node['known'] as Value;
      case 'For':
        return super.evaluate({ ...node, body: [{ type: 'Turn', body: node['body'], loop: { ended: false } }] }, scope);
      case 'Turn':
        return this.#turn(node, scope);
      case 'Macro':
        return this.#macro(node, scope);
      case 'BinaryExpression':
        return this.#binary(node, scope);
      case 'MemberExpression': {
        const object = this.evaluate(node['object'] as Node, scope);
        if (isAbsent(object)) throw new Error('it reads a member of an undefined value');
        return super.evaluate({ ...node, object: known(object) }, scope);
      }
      default:
        return super.evaluate(node, scope);
    }
  }

  /**
   * The package prints values in blocks as JavaScript does, and discards the output of a turn before `break` or
   * `continue`.
   */
  evaluateBlock(body: readonly Node[], scope: Scope): Value {
    let text = '';
    for (const statement of body) {
      if (statement.type === 'Break' || statement.type === 'Continue') this.#leaving = statement.type;
      else {
        const value = this.evaluate(statement, scope);
        if (!silent.has(statement.type)) text += printed(value);
      }
      if (this.#leaving !== null) break;
    }
    return valueOf(text);
  }

  /** The body of a loop, with its own scope. After `break` the remaining turns print nothing. */
  #turn({ body, loop }: Node, scope: Scope): Value {
    const state = loop as { ended: boolean };
    if (state.ended) return valueOf('');
    const text = this.evaluateBlock(body as readonly Node[], new library.Environment(scope));
    if (this.#leaving === 'Break') state.ended = true;
    this.#leaving = null;
    return text;
  }

  /** A macro has the names of the scope where it is defined, not the caller's. A call block passes its `caller`. */
  #macro(node: Node, scope: Scope): Value {
    const result = super.evaluate(node, scope);
    const defined = scope.lookupVariable(node.name!.value) as Value & { value: Callable };
    const call = defined.value;
    defined.value = (args, from) => {
      const inner = new library.Environment(scope);
      const caller = from.variables.get('caller');
      if (caller !== undefined) inner.setVariable('caller', caller);
      return call(args, inner);
    };
    return result;
  }

  #binary(node: Node, scope: Scope): Value {
    const operator = node.operator!.value;
    if (operator === 'and' || operator === 'or') return super.evaluate(node, scope);
    const left = this.evaluate(node['left'] as Node, scope);
    const right = this.evaluate(node['right'] as Node, scope);
    const [a, b] = [numeric(left), numeric(right)];
    if (operator === '==') return valueOf(equal(left, right));
    if (operator === '!=') return valueOf(!equal(left, right));
    if (operator === '~') return valueOf(printed(left) + printed(right));
    if (isList(right) && operator.endsWith('in')) {
      return valueOf(right.value.some((item) => equal(left, item)) === (operator === 'in'));
    }
    if (operator === '+' && isText(left) !== isText(right)) {
      throw new Error(`it adds ${left.type} and ${right.type}; allowed: two texts, lists or numbers`);
    }
    if (a !== null && b !== null && ['%', '/', '//'].includes(operator)) {
      if (b === 0) throw new Error('it divides by zero');
      if (operator === '%' && isInteger(left) && isInteger(right)) return valueOf(((a % b) + b) % b);
    }
    return super.evaluate({ ...node, left: known(left), right: known(right) }, scope);
  }

  /** Filters that the package applies otherwise than Python does. */
  override applyFilter(operand: Value, filter: Node, scope: Scope): Value {
    const isCall = filter.type === 'CallExpression';
    const name = (isCall ? (filter['callee'] as Node) : filter).value;
    if (name === 'trim' && isText(operand) && !isCall) return valueOf(strip(operand.value, undefined, 'both'));
    if (refusedFilters.has(name)) throw new Error(`the filter '${String(name)}' is not supported`);
    if (name === 'list' && !isCall && !isList(operand)) throw new Error(`the filter 'list' takes lists`);
    if (name === 'tojson' && isAbsent(operand)) throw new Error('it writes an undefined value as JSON');
    if (name === 'join') {
      const named = isCall && (filter['args'] as readonly Node[]).some(({ type }) => type.startsWith('Keyword'));
      if (named || !isList(operand) || !operand.value.every((item) => isText(item) || isInteger(item))) {
        throw new Error("the filter 'join' takes texts and whole numbers, and a separator without a name");
      }
    }
    return super.applyFilter(operand, filter, scope);
  }
}

function range(...args: readonly number[]): number[] {
  const [start, stop, step] = args.length === 1 ? [0, args[0], 1] : [args[0], args[1], args[2] ?? 1];
  if (![start, stop, step].every(Number.isSafeInteger) || step === 0) throw new Error('range takes whole numbers');
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > MAX_RANGE) throw new Error(`it makes a range of more than ${MAX_RANGE} numbers`);
  return Array.from({ length }, (_, i) => start + i * step);
}

correctStrings();
const { tests } = new library.Environment();
const isSequence = (value: Value): boolean => isText(value) || isList(value) || isDict(value) || isAbsent(value);
for (const name of ['iterable', 'sequence']) tests.set(name, isSequence);
for (const name of refusedTests) tests.delete(name);
for (const name of ['eq', 'equalto', '==']) tests.set(name, equal);

/** The text of a template with `names`, which are JSON. Throws an Error in the template's or jinja's words. */
export function renderTemplate(template: Node, names: Readonly<Record<string, unknown>>, now: Date): string {
  const scope = new library.Environment();
  const constants = { true: true, True: true, false: false, False: false, none: null, None: null };
  const functions = {
    range,
    raise_exception: (message: unknown) => {
      throw new Error(String(message));
    },
    strftime_now: (format: unknown) => strftime(now, String(format)),
  };
  for (const [name, value] of Object.entries({ ...constants, ...functions, ...names })) {
    scope.setVariable(name, valueOf(value));
  }
  const text = new PythonInterpreter(scope).evaluate(template, scope).value as string;
  if (/\p{Surrogate}/u.test(text)) throw new Error('a text ends or starts within a character');
  return text;
}

const weekdays = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];
const months = ['January', 'February', 'March', 'April', 'May', 'June', 'July', 'August', 'September', 'October', 'November', 'December']; // prettier-ignore

/** Local time in the C locale. Throws an Error for an unsupported directive. */
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
    if (value === undefined) throw new Error(`'${found}' of strftime_now is not supported`);
    return value;
  });
}
