/** Evaluates templates as Python's jinja2 does, with what transformers adds. */
import { applyFilter, contains, testNamed } from './filters.js';
import { dictMethods, missingGlobals } from './globals.js';
import { operators } from './operators.js';
import type { Argument, Call, CallStatement, Expression, For, Identifier, Member, Parameter, SetStatement, Slice, Statement } from './syntax.js'; // prettier-ignore
import { textMethod } from './text_methods.js';
import {
  asNumber,
  Float,
  isDict,
  isList,
  iterate,
  Namespace,
  codePoints,
  firstDefined,
  requireShort,
  str,
  TemplateFailure,
  isTruthy,
  Tuple,
  typeName,
  Undefined,
  type Callable,
  type Value,
} from './values.js';

/** Names and their values; what is set inside a loop or a macro is not visible outside. */
export class Scope {
  readonly #names: Map<string, Value>;

  constructor(
    names: Iterable<readonly [string, Value]>,
    readonly parent: Scope | null = null,
  ) {
    this.#names = new Map(names);
  }

  get(name: string): Value {
    const found = this.#names.get(name);
    if (found !== undefined) return found;
    if (this.parent !== null) return this.parent.get(name);
    if (missingGlobals.has(name)) throw new TemplateFailure(`'${name}' is not covered`);
    return new Undefined(`'${name}'`);
  }

  set(name: string, value: Value): void {
    this.#names.set(name, value);
  }
}

/** How a statement ended, if it ended an iteration of a loop. */
type Ending = 'break' | 'continue' | null;

/**
 * Iterations of all loops in one rendering: a template loops over its messages, their parts and a few lists; more than this would be an endless loop.
 */
const MOST_TURNS = 1_000_000;

/** Milliseconds of one rendering: a conversation takes one or two. */
const MOST_MS = 10_000;
/** The number of values that are computed between two checks of the clock. */
const LOOK_EVERY = 1024;
/** All that is written in one rendering, into variables and macros too. */
const MOST_WRITTEN = 64 * 2 ** 20;

/** One rendering, within a time and a size. `onItem` hears of each item that a loop comes to. */
export class Evaluation {
  #turns = 0;
  #values = 0;
  #written = 0;
  readonly #deadline: number;

  constructor(
    readonly onItem: (item: Value) => void,
    private readonly nowMs: () => number = () => performance.now(),
  ) {
    this.#deadline = nowMs() + MOST_MS;
  }

  /** Called for every value: nothing that a template does goes on without computing one. */
  #count(): void {
    if (++this.#values % LOOK_EVERY === 0 && this.nowMs() > this.#deadline) {
      throw new TemplateFailure(`it takes longer than ${MOST_MS / 1000} seconds`);
    }
  }

  #write(out: string[], value: Value): void {
    const text = requireShort(str(value));
    this.#written += text.length;
    if (this.#written > MOST_WRITTEN) throw new TemplateFailure(`it writes more than ${MOST_WRITTEN / 2 ** 20} MiB`);
    out.push(text);
  }

  render(body: readonly Statement[], scope: Scope): string {
    const out: string[] = [];
    this.#run(body, scope, out);
    return out.join('');
  }

  #run(body: readonly Statement[], scope: Scope, out: string[]): Ending {
    for (const statement of body) {
      const ending = this.#statement(statement, scope, out);
      if (ending !== null) return ending;
    }
    return null;
  }

  #statement(statement: Statement, scope: Scope, out: string[]): Ending {
    // eslint-disable-next-line @typescript-eslint/switch-exhaustiveness-check -- every expression is printed
    switch (statement.type) {
      case 'If':
        return this.#run(
          isTruthy(this.#value(statement.test, scope)) ? statement.body : statement.alternate,
          scope,
          out,
        );
      case 'For':
        this.#loop(statement, scope, out);
        return null;
      case 'Set':
        this.#set(statement, scope);
        return null;
      case 'Macro':
        scope.set(statement.name.value, this.#macro(statement.args, statement.body, scope));
        return null;
      case 'CallStatement':
        this.#write(out, this.#callBlock(statement, scope));
        return null;
      case 'FilterStatement':
        this.#write(out, this.#filtered(this.render(statement.body, new Scope([], scope)), statement.filter, scope));
        return null;
      case 'Break':
        return 'break';
      case 'Continue':
        return 'continue';
      case 'Comment':
        return null;
      default:
        this.#write(out, this.#value(statement, scope));
        return null;
    }
  }

  #loop({ loopvar, iterable, body, defaultBlock }: For, scope: Scope, out: string[]): void {
    const test = iterable.type === 'SelectExpression' ? iterable.test : null;
    const all = iterate(this.#value(iterable.type === 'SelectExpression' ? iterable.lhs : iterable, scope));
    const turn = (item: Value): Scope => {
      const inner = new Scope([], scope);
      this.#assign(loopvar, item, inner);
      return inner;
    };
    const items = test === null ? all : all.filter((item) => isTruthy(this.#value(test, turn(item))));
    if (items.length === 0) this.#run(defaultBlock, scope, out);
    for (const [i, item] of items.entries()) {
      this.onItem(item);
      if (++this.#turns > MOST_TURNS) throw new TemplateFailure(`its loops take more than ${MOST_TURNS} turns`);
      const inner = turn(item);
      inner.set('loop', loopState(items, i));
      if (this.#run(body, inner, out) === 'break') break;
    }
  }

  #set({ assignee, value, body }: SetStatement, scope: Scope): void {
    this.#assign(assignee, value === null ? this.render(body, new Scope([], scope)) : this.#value(value, scope), scope);
  }

  #assign(target: Expression, value: Value, scope: Scope): void {
    if (target.type === 'Identifier') {
      scope.set(target.value, value);
    } else if (target.type === 'TupleLiteral') {
      const items = iterate(value);
      if (items.length !== target.value.length) {
        throw new TemplateFailure(`cannot unpack ${items.length} values into ${target.value.length} names`);
      }
      for (const [i, inner] of target.value.entries()) this.#assign(inner, items[i], scope);
    } else if (target.type === 'MemberExpression' && target.property.type === 'Identifier') {
      const object = this.#value(target.object, scope);
      if (!(object instanceof Namespace)) throw new TemplateFailure('cannot assign attribute on non-namespace object');
      object.attributes.set(target.property.value, value);
    } else {
      throw new TemplateFailure(`a ${target.type} cannot be assigned to`);
    }
  }

  #macro(parameters: readonly Parameter[], body: readonly Statement[], outer: Scope, caller?: Callable): Callable {
    const names = parameters.map((parameter) => (parameter.type === 'Identifier' ? parameter : parameter.key).value);
    return (positional, named) => {
      const scope = new Scope(caller === undefined ? [] : [['caller', caller]], outer);
      const extra = [...named.keys()].find((name) => !names.includes(name) && name !== 'caller');
      if (positional.length > names.length || extra !== undefined) {
        throw new TemplateFailure(`a macro takes ${names.join(', ') || 'nothing'}; found ${extra ?? `${positional.length} values`}`); // prettier-ignore
      }
      const given = named.get('caller');
      if (given !== undefined) scope.set('caller', given);
      for (const [i, parameter] of parameters.entries()) {
        const absent = (): Value =>
          parameter.type === 'Identifier'
            ? new Undefined(`the parameter '${parameter.value}'`)
            : this.#value(parameter.value, scope);
        const value = firstDefined(positional[i], named.get(names[i]));
        scope.set(names[i], value === undefined ? absent() : value);
      }
      return this.render(body, scope);
    };
  }

  #callBlock({ call, callerArgs, body }: CallStatement, scope: Scope): Value {
    const { positional, named } = this.#arguments(call.args, scope);
    named.set('caller', this.#macro(callerArgs ?? [], body, scope));
    return invoke(this.#value(call.callee, scope), positional, named);
  }

  #value(node: Expression, scope: Scope): Value {
    this.#count();
    return requireShort(this.#computed(node, scope));
  }

  #computed(node: Expression, scope: Scope): Value {
    switch (node.type) {
      case 'StringLiteral':
      case 'IntegerLiteral':
        return node.value;
      case 'FloatLiteral':
        return new Float(node.value);
      case 'Identifier':
        return scope.get(node.value);
      case 'ArrayLiteral':
        return node.value.map((item) => this.#value(item, scope));
      case 'TupleLiteral':
        return new Tuple(node.value.map((item) => this.#value(item, scope)));
      case 'ObjectLiteral':
        return new Map([...node.value].map(([key, item]) => [this.#key(key, scope), this.#value(item, scope)]));
      case 'MemberExpression':
        return this.#member(node, scope);
      case 'CallExpression': {
        const callee = this.#value(node.callee, scope);
        const { positional, named } = this.#arguments(node.args, scope);
        return invoke(callee, positional, named);
      }
      case 'FilterExpression':
        return this.#filtered(this.#value(node.operand, scope), node.filter, scope);
      case 'TestExpression':
        return testNamed(node.test.value)(this.#value(node.operand, scope), null) !== node.negate;
      case 'UnaryExpression':
        return unary(node.operator.value, this.#value(node.argument, scope));
      case 'SelectExpression':
        if (isTruthy(this.#value(node.test, scope))) return this.#value(node.lhs, scope);
        return new Undefined('an expression whose `if` does not hold and that has no `else`');
      case 'Ternary':
        return this.#value(isTruthy(this.#value(node.condition, scope)) ? node.trueExpr : node.falseExpr, scope);
      case 'BinaryExpression': {
        const left = this.#value(node.left, scope);
        const { value: operator } = node.operator;
        if (operator === 'and') return isTruthy(left) ? this.#value(node.right, scope) : left;
        if (operator === 'or') return isTruthy(left) ? left : this.#value(node.right, scope);
        const right = this.#value(node.right, scope);
        if (operator === 'in') return contains(right, left);
        if (operator === 'not in') return !contains(right, left);
        return operators(operator, left, right);
      }
      case 'SliceExpression':
        throw new TemplateFailure('a slice stands outside brackets');
    }
  }

  #key(node: Expression, scope: Scope): string {
    const key = this.#value(node, scope);
    if (typeof key === 'string') return key;
    throw new TemplateFailure(`keys that are no strings are not covered; found ${typeName(key)}`);
  }

  #filtered(value: Value, filter: Identifier | Call, scope: Scope): Value {
    if (filter.type === 'Identifier') return applyFilter(filter.value, value, [], new Map());
    if (filter.callee.type !== 'Identifier') throw new TemplateFailure('a filter has no name');
    const { positional, named } = this.#arguments(filter.args, scope);
    return applyFilter(filter.callee.value, value, positional, named);
  }

  #arguments(args: readonly Argument[], scope: Scope): { positional: Value[]; named: Map<string, Value> } {
    const positional: Value[] = [];
    const named = new Map<string, Value>();
    for (const argument of args) {
      if (argument.type === 'KeywordArgumentExpression') {
        named.set(argument.key.value, this.#value(argument.value, scope));
      } else if (argument.type === 'SpreadExpression') {
        positional.push(...iterate(this.#value(argument.argument, scope)));
      } else if (argument.type === 'KeywordSpreadExpression') {
        const dict = this.#value(argument.argument, scope);
        if (!isDict(dict)) throw new TemplateFailure(`argument after ** must be a mapping, not ${typeName(dict)}`);
        for (const [key, item] of dict) named.set(key, item);
      } else {
        positional.push(this.#value(argument, scope));
      }
    }
    return { positional, named };
  }

  #member({ object: node, property, computed }: Member, scope: Scope): Value {
    const object = this.#value(node, scope);
    if (object instanceof Undefined) throw object.fail();
    if (!computed) {
      return dotted(object, property.type === 'Identifier' ? property.value : this.#value(property, scope));
    }
    if (property.type === 'SliceExpression') return this.#slice(object, property, scope);
    return subscripted(object, this.#value(property, scope));
  }

  #slice(object: Value, { start, stop, step }: Slice, scope: Scope): Value {
    const bound = (node: Expression | undefined): number | null => {
      const value = node === undefined ? null : this.#value(node, scope);
      const number = value === null || value instanceof Float ? null : asNumber(value);
      if (value !== null && number === null) throw new TemplateFailure('slice indices must be integers or None');
      return number;
    };
    const bounds = [bound(start), bound(stop), bound(step)] as const;
    if (typeof object === 'string') return sliced(codePoints(object), ...bounds).join('');
    if (object instanceof Tuple) return new Tuple(sliced(object.items, ...bounds));
    if (isList(object)) return sliced(object, ...bounds);
    return new Undefined(`a slice of a ${typeName(object)}`);
  }
}

/** Python's slices. */
function sliced<T>(items: readonly T[], start: number | null, stop: number | null, step: number | null): T[] {
  const by = step ?? 1;
  if (by === 0) throw new TemplateFailure('slice step cannot be zero');
  const { length } = items;
  const [lowest, highest] = by > 0 ? [0, length] : [-1, length - 1];
  const place = (bound: number | null, absent: number): number =>
    bound === null ? absent : Math.min(highest, Math.max(lowest, bound < 0 ? bound + length : bound));
  const [from, to] = [place(start, by > 0 ? lowest : highest), place(stop, by > 0 ? highest : lowest)];
  const out: T[] = [];
  for (let i = from; by > 0 ? i < to : i > to; i += by) out.push(items[i]);
  return out;
}

/** `object.name`: an attribute, else an item. */
function dotted(object: Value, name: Value): Value {
  const found = typeof name === 'string' ? attribute(object, name) : undefined;
  return firstDefined(found, item(object, name), missing(object, name)) as Value;
}

/** `object[key]`: an item, else an attribute. */
function subscripted(object: Value, key: Value): Value {
  const found = item(object, key);
  if (found !== undefined || typeof key !== 'string') return firstDefined(found, missing(object, key)) as Value;
  return firstDefined(attribute(object, key), missing(object, key)) as Value;
}

function missing(object: Value, key: Value): Undefined {
  return new Undefined(`'${str(key)}' of a ${typeName(object)}`);
}

function attribute(object: Value, name: string): Value | undefined {
  if (typeof object === 'string') return textMethod(object, name);
  if (object instanceof Namespace) return object.attributes.get(name);
  if (isDict(object) && Object.hasOwn(dictMethods, name)) return dictMethods[name](object);
  return undefined;
}

function item(object: Value, key: Value): Value | undefined {
  if (isDict(object)) return typeof key === 'string' ? object.get(key) : undefined;
  const index = key instanceof Float ? null : asNumber(key);
  if (index === null) return undefined;
  if (typeof object === 'string') return codePoints(object).at(index);
  if (object instanceof Tuple) return object.items.at(index);
  return isList(object) ? object.at(index) : undefined;
}

function invoke(callee: Value, positional: readonly Value[], named: ReadonlyMap<string, Value>): Value {
  if (typeof callee === 'function') return callee(positional, named);
  if (callee instanceof Undefined) throw callee.fail();
  throw new TemplateFailure(`'${typeName(callee)}' object is not callable`);
}

function unary(operator: string, value: Value): Value {
  if (operator === 'not') return !isTruthy(value);
  const number = asNumber(value);
  if (number === null) throw new TemplateFailure(`bad operand type for unary ${operator}: '${typeName(value)}'`);
  const signed = operator === '-' ? -number : number;
  return value instanceof Float ? new Float(signed) : signed;
}

/** The variable `loop` in iteration `i` of a loop. */
function loopState(items: readonly Value[], i: number): Value {
  return new Map<string, Value>([
    ['index', i + 1],
    ['index0', i],
    ['revindex', items.length - i],
    ['revindex0', items.length - i - 1],
    ['first', i === 0],
    ['last', i === items.length - 1],
    ['length', items.length],
    ['previtem', firstDefined(items[i - 1], new Undefined('the item before the first')) as Value],
    ['nextitem', firstDefined(items[i + 1], new Undefined('the item after the last')) as Value],
    ['cycle', (args) => firstDefined(args[i % args.length], new Undefined('an item of no items')) as Value],
  ]);
}
