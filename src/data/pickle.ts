/**
 * Python's pickles as data. A pickle is a program of a small stack machine, and what makes it dangerous is that it may name any
 * function of the machine it is read on, to be called. Here names mean what a table says, which holds plain functions of this program; any
 * other is refused, and nothing of Python is ever run. What cannot be had this way (objects of classes, shared buffers) is refused, too.
 */
import { isUtf8 } from 'node:buffer';
import { DataError } from '../core/errors.js';

/** What a pickle holds. Dictionaries are maps, so that no key is special. */
export type PickleValue =
  | null
  | boolean
  | number
  | bigint
  | string
  | Uint8Array
  | readonly PickleValue[]
  | ReadonlyMap<PickleValue, PickleValue>
  | PickledName
  | PickledObject;

/** A name in a pickle, as `module.name`. */
export class PickledName {
  constructor(readonly name: string) {}
}

/** An object made by a function of the table. */
export abstract class PickledObject {
  /** Takes what the pickle says of it after it was made. Raises DataError where nothing can be said of it. */
  build(_state: PickleValue, where: string): void {
    throw pickleError('sets the state of an object that has none', where);
  }
}

/** What a name stands for: given the arguments, the value. Raises DataError for arguments of another form. */
export type PickleFunction = (args: readonly PickleValue[], where: string) => PickleValue;

export interface PickleTable {
  /** By `module.name`: names that may be called; null for those that may only be mentioned. */
  readonly names: ReadonlyMap<string, PickleFunction | null>;
  /** What a reference to something outside of the pickle is. */
  readonly outside: (id: PickleValue, where: string) => PickleValue;
}

/** The newest protocol that is read. */
const NEWEST = 5;

const MARK = Symbol('mark');
type Entry = PickleValue | typeof MARK;

/** Reads a whole pickle. Raises DataError naming `where` for a name that is not in the table, an instruction that is not read, or a pickle that is cut short. */
export function readPickle(bytes: Uint8Array, table: PickleTable, where: string): PickleValue {
  const machine = new Machine(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), table, where);
  return machine.run();
}

/** A refusal of something in a pickle. */
export function pickleError(found: string, where: string): DataError {
  return new DataError(`the pickle ${found}`, {
    where,
    next: 'Samples are dictionaries of texts, numbers, tensors and NumPy arrays: save it again so, or as .npz. A file from elsewhere that says anything else may be an attack.',
  });
}

class Machine {
  readonly #stack: Entry[] = [];
  readonly #memo = new Map<number, PickleValue>();
  #at = 0;

  constructor(
    private readonly bytes: Buffer,
    private readonly table: PickleTable,
    private readonly where: string,
  ) {}

  run(): PickleValue {
    for (;;) {
      const code = this.#byte();
      if (code === STOP) return this.#pop();
      const instruction = instructions.get(code);
      if (instruction === undefined) {
        throw pickleError(
          `holds an instruction that is not read (0x${code.toString(16)} at byte ${this.#at - 1})`,
          this.where,
        );
      }
      instruction(this);
    }
  }

  push(value: Entry): void {
    this.#stack.push(value);
  }

  #pop(): PickleValue {
    const value = this.#stack.pop();
    if (value === undefined || value === MARK) throw pickleError('takes from an empty stack', this.where);
    return value;
  }

  /** Everything above the last mark, and the mark is gone. */
  #popMarked(): PickleValue[] {
    const at = this.#stack.lastIndexOf(MARK);
    if (at < 0) throw pickleError('goes back to a mark that it has not set', this.where);
    return this.#stack.splice(at).slice(1) as PickleValue[];
  }

  #take(count: number): Buffer {
    if (count < 0 || count > this.bytes.length - this.#at) {
      throw pickleError(
        `is cut short: ${count} bytes are said to follow, ${this.bytes.length - this.#at} do`,
        this.where,
      );
    }
    this.#at += count;
    return this.bytes.subarray(this.#at - count, this.#at);
  }

  #byte(): number {
    return this.#take(1)[0];
  }

  /** An unsigned number of so many bytes. */
  #size(width: 1 | 2 | 4 | 8): number {
    return width === 8 ? Number(this.#take(8).readBigUInt64LE()) : this.#take(width).readUIntLE(0, width);
  }

  text(width: 1 | 4 | 8): void {
    const bytes = this.#take(this.#size(width));
    if (!isUtf8(bytes)) throw pickleError('holds a text that is not UTF-8', this.where);
    this.push(bytes.toString('utf8'));
  }

  data(width: 1 | 4 | 8): void {
    this.push(Uint8Array.from(this.#take(this.#size(width))));
  }

  unsigned(width: 1 | 2): void {
    this.push(this.#size(width));
  }

  signed(): void {
    this.push(this.#take(4).readInt32LE());
  }

  float(): void {
    this.push(this.#take(8).readDoubleBE());
  }

  /** Two's complement of so many bytes, the least first. */
  long(width: 1 | 4): void {
    const digits = this.#take(this.#size(width));
    if (digits.length > MOST_DIGITS) throw pickleError(`holds a number of ${digits.length} bytes`, this.where);
    const hex = Buffer.from(digits).reverse().toString('hex');
    const value = BigInt.asIntN(8 * digits.length, BigInt(`0x${hex || '0'}`));
    this.push(Number.isSafeInteger(Number(value)) ? Number(value) : value);
  }

  skip(bytes: number): void {
    this.#take(bytes);
  }

  protocol(): void {
    const version = this.#byte();
    if (version <= NEWEST) return;
    throw pickleError(`is of protocol ${version}; allowed: up to ${NEWEST}`, this.where);
  }

  tuple(count: number | 'marked'): void {
    if (count === 'marked') return this.push(this.#popMarked());
    const items = Array.from({ length: count }, () => this.#pop()).reverse();
    this.push(items);
  }

  append(many: boolean): void {
    const items = many ? this.#popMarked() : [this.#pop()];
    const list = this.#top();
    if (!Array.isArray(list)) throw pickleError('appends to what is no list', this.where);
    for (const item of items) (list as PickleValue[]).push(item);
  }

  set(many: boolean): void {
    const items = many ? this.#popMarked() : [this.#pop(), this.#pop()].reverse();
    const map = this.#top();
    if (!(map instanceof Map) || items.length % 2 !== 0) {
      throw pickleError('sets a key of what is no dictionary', this.where);
    }
    for (let i = 0; i < items.length; i += 2) (map as Map<PickleValue, PickleValue>).set(items[i], items[i + 1]);
  }

  #top(): Entry {
    const value = this.#stack.at(-1);
    if (value === undefined) throw pickleError('takes from an empty stack', this.where);
    return value;
  }

  put(width: 1 | 4 | 'next'): void {
    const place = width === 'next' ? this.#memo.size : this.#size(width);
    const value = this.#top();
    if (value === MARK) throw pickleError('remembers a mark', this.where);
    this.#memo.set(place, value);
  }

  get(width: 1 | 4): void {
    const value = this.#memo.get(this.#size(width));
    if (value === undefined) throw pickleError('recalls what it has not remembered', this.where);
    this.push(value);
  }

  /** A name in two lines. */
  global(): void {
    const line = (): string => {
      const end = this.bytes.indexOf(0x0a, this.#at);
      const text = this.#take(end < 0 ? Infinity : end - this.#at).toString('utf8');
      this.skip(1);
      return text;
    };
    this.#mention(line(), line());
  }

  /** A name from the stack. */
  stackGlobal(): void {
    const [name, module] = [this.#pop(), this.#pop()];
    if (typeof name !== 'string' || typeof module !== 'string') {
      throw pickleError('names something by no text', this.where);
    }
    this.#mention(module, name);
  }

  #mention(module: string, name: string): void {
    const full = `${module}.${name}`;
    if (!this.table.names.has(full)) {
      throw pickleError(`wants ${JSON.stringify(full.slice(0, 80))}, which nothing here may use`, this.where);
    }
    this.push(new PickledName(full));
  }

  reduce(): void {
    const [args, callee] = [this.#pop(), this.#pop()];
    const call = callee instanceof PickledName ? this.table.names.get(callee.name) : undefined;
    if (call === undefined || call === null || !Array.isArray(args)) {
      const what = callee instanceof PickledName ? callee.name : 'what is no function';
      throw pickleError(`calls ${what}`, this.where);
    }
    this.push(call(args as PickleValue[], this.where));
  }

  build(): void {
    const state = this.#pop();
    const object = this.#top();
    if (!(object instanceof PickledObject)) throw pickleError('sets the state of what has none', this.where);
    object.build(state, this.where);
  }

  outside(): void {
    this.push(this.table.outside(this.#pop(), this.where));
  }
}

const STOP = 0x2e;
/** Numbers of samples have 8 bytes; some room is no danger. */
const MOST_DIGITS = 32;

/** By their codes (Python's pickletools names them): all that protocols 2 to 5 write of plain data. */
const instructions: ReadonlyMap<number, (machine: Machine) => void> = new Map([
  [0x80, (m) => m.protocol()], // PROTO
  [0x95, (m) => m.skip(8)], // FRAME
  [0x28, (m) => m.push(MARK)], // MARK
  [0x4e, (m) => m.push(null)], // NONE
  [0x88, (m) => m.push(true)], // NEWTRUE
  [0x89, (m) => m.push(false)], // NEWFALSE
  [0x4a, (m) => m.signed()], // BININT
  [0x4b, (m) => m.unsigned(1)], // BININT1
  [0x4d, (m) => m.unsigned(2)], // BININT2
  [0x8a, (m) => m.long(1)], // LONG1
  [0x8b, (m) => m.long(4)], // LONG4
  [0x47, (m) => m.float()], // BINFLOAT
  [0x8c, (m) => m.text(1)], // SHORT_BINUNICODE
  [0x58, (m) => m.text(4)], // BINUNICODE
  [0x8d, (m) => m.text(8)], // BINUNICODE8
  [0x43, (m) => m.data(1)], // SHORT_BINBYTES
  [0x42, (m) => m.data(4)], // BINBYTES
  [0x8e, (m) => m.data(8)], // BINBYTES8
  [0x96, (m) => m.data(8)], // BYTEARRAY8
  [0x29, (m) => m.push([])], // EMPTY_TUPLE
  [0x85, (m) => m.tuple(1)], // TUPLE1
  [0x86, (m) => m.tuple(2)], // TUPLE2
  [0x87, (m) => m.tuple(3)], // TUPLE3
  [0x74, (m) => m.tuple('marked')], // TUPLE
  [0x5d, (m) => m.push([])], // EMPTY_LIST
  [0x61, (m) => m.append(false)], // APPEND
  [0x65, (m) => m.append(true)], // APPENDS
  [0x7d, (m) => m.push(new Map())], // EMPTY_DICT
  [0x73, (m) => m.set(false)], // SETITEM
  [0x75, (m) => m.set(true)], // SETITEMS
  [0x71, (m) => m.put(1)], // BINPUT
  [0x72, (m) => m.put(4)], // LONG_BINPUT
  [0x94, (m) => m.put('next')], // MEMOIZE
  [0x68, (m) => m.get(1)], // BINGET
  [0x6a, (m) => m.get(4)], // LONG_BINGET
  [0x63, (m) => m.global()], // GLOBAL
  [0x93, (m) => m.stackGlobal()], // STACK_GLOBAL
  [0x52, (m) => m.reduce()], // REDUCE
  [0x62, (m) => m.build()], // BUILD
  [0x51, (m) => m.outside()], // BINPERSID
]);
