/**
 * Reads files of `torch.save` as data: a zip with a pickle, which lists the contents, and an entry with the bytes of
 * each storage. A pickle is a program for a small stack machine that may call any function of the reading machine by
 * name. Here a name can only refer to a table of functions of this module, so other names are rejected and no Python runs.
 */
import { isUtf8 } from 'node:buffer';
import { unzipSync } from 'fflate';
import { DataError } from '../core/errors.js';
import { floatOf } from '../core/finite.js';
import { halfToFloat } from '../core/half.js';

/** A tensor or a NumPy array, its elements in C order. The pickle first makes a NumPy array empty and then fills it. */
export class SavedArray {
  constructor(
    public dtype: Dtype,
    public shape: readonly number[],
    /** Integers of 64 bits become numbers. Integers that a double cannot hold are rejected. */
    public values: readonly number[],
  ) {}
}

type Read = (view: DataView, at: number, little: boolean) => number | bigint;

/**
 * By dtype: the name of torch's storage class, NumPy's short name, the bytes of an element, and the function that reads
 * it. A name is null if there is none.
 */
const dtypes = {
  uint8: ['torch.ByteStorage', 'u1', 1, (view, at) => view.getUint8(at)],
  int8: ['torch.CharStorage', 'i1', 1, (view, at) => view.getInt8(at)],
  bool: ['torch.BoolStorage', 'b1', 1, (view, at) => Number(view.getUint8(at) !== 0)],
  int16: ['torch.ShortStorage', 'i2', 2, (view, at, little) => view.getInt16(at, little)],
  uint16: [null, 'u2', 2, (view, at, little) => view.getUint16(at, little)],
  int32: ['torch.IntStorage', 'i4', 4, (view, at, little) => view.getInt32(at, little)],
  uint32: [null, 'u4', 4, (view, at, little) => view.getUint32(at, little)],
  int64: ['torch.LongStorage', 'i8', 8, (view, at, little) => view.getBigInt64(at, little)],
  uint64: [null, 'u8', 8, (view, at, little) => view.getBigUint64(at, little)],
  float16: ['torch.HalfStorage', 'f2', 2, (view, at, little) => halfToFloat(view.getUint16(at, little))],
  bfloat16: ['torch.BFloat16Storage', null, 2, (view, at) => floatOf(view.getUint16(at, true) << 16)],
  float32: ['torch.FloatStorage', 'f4', 4, (view, at, little) => view.getFloat32(at, little)],
  float64: ['torch.DoubleStorage', 'f8', 8, (view, at, little) => view.getFloat64(at, little)],
} as const satisfies Readonly<Record<string, readonly [torch: string | null, numpy: string | null, number, Read]>>;
export type Dtype = keyof typeof dtypes;

const dtypeNames = Object.keys(dtypes) as Dtype[];

/**
 * Elements of all arrays of a file together: views may repeat the elements of a small storage, and no sample has that
 * many.
 */
const MAX_ELEMENTS = 2 ** 22;
const MAX_AXES = 8;
/** The minimum size of an entry in the directory of a zip. */
const MIN_ENTRY_BYTES = 46;

/** The reason for rejecting a file. `readTorchFile` makes a DataError of it. */
class Refusal extends Error {}

function refuse(found: string): never {
  throw new Refusal(found);
}

/**
 * Reads a file. Dictionaries become maps, so that no key is special. Tensors and NumPy arrays become `SavedArray`s.
 * Raises DataError naming `where` for a file that torch did not write, that is truncated, or that contains anything but
 * data.
 */
export function readTorchFile(bytes: Uint8Array, where: string): unknown {
  try {
    if (bytes[0] === 0x80) refuse('it is a bare pickle, as torch wrote before version 1.6');
    const entries = unzip(bytes);
    const [root, another] = [...entries.keys()].flatMap((name) => /^([^/]+\/)data\.pkl$/.exec(name)?.[1] ?? []);
    if (root === undefined || another !== undefined) refuse('it does not have one data.pkl');
    const order = Buffer.from(entries.get(`${root}byteorder`) ?? []).toString();
    if (order === 'big') refuse('it was written on a machine with the highest byte first');
    return readPickle(Buffer.from(entries.get(`${root}data.pkl`)!), (key) => entries.get(`${root}data/${key}`));
  } catch (cause) {
    if (!(cause instanceof Refusal)) throw cause;
    throw new DataError(`not a readable file of torch.save: ${cause.message}`, {
      where,
      next: 'Samples are dictionaries of texts, numbers, tensors and NumPy arrays: copy or create this one again, or save it as .npz. Other content in a file from an unknown source may be an attack.',
      cause,
    });
  }
}

/** The entries of the zip. They are not compressed, so the file cannot grow when it is read. */
function unzip(bytes: Uint8Array): Map<string, Uint8Array> {
  let [count, size] = [0, 0];
  try {
    const found = unzipSync(bytes, {
      filter: (entry) => {
        count += 1;
        size += entry.size;
        if (entry.compression !== 0) refuse(`its entry ${entry.name} is compressed, which torch does not do`);
        const fits = size <= bytes.length && count * MIN_ENTRY_BYTES <= bytes.length;
        return fits || refuse('its entries are larger than the file');
      },
    });
    return new Map(Object.entries(found));
  } catch (cause) {
    return refuse(cause instanceof Error ? cause.message : String(cause));
  }
}

/** A class that a pickle may mention, and not call: torch's of a storage, or NumPy's of arrays, which has no dtype. */
class Mentioned {
  constructor(readonly dtype: Dtype | null) {}
}

/** NumPy's description of elements. The pickle sets the order of bytes afterwards. */
class NumpyDtype {
  little = true;
  constructor(readonly dtype: Dtype) {}
}

/** Elements in a row, which arrays are views of. */
class Storage {
  constructor(
    readonly dtype: Dtype,
    readonly bytes: Uint8Array,
    /** Number of elements that further arrays of the file may have. */
    readonly room: { elements: number },
    readonly little = true,
  ) {}

  /** A view, in C order. Strides and offset in elements. */
  view(offset: number, shape: readonly number[], strides: readonly number[]): SavedArray {
    const [, , width, read]: readonly [unknown, unknown, number, Read] = dtypes[this.dtype];
    const count = shape.reduce((product, size) => product * size, 1);
    const last = shape.reduce((at, size, axis) => at + (size - 1) * strides[axis], offset);
    if (shape.length > MAX_AXES || count > this.room.elements) {
      refuse(`an array has more elements than any sample: [${shape.slice(0, MAX_AXES).join(', ')}]`);
    }
    this.room.elements -= count;
    const held = Math.floor(this.bytes.length / width);
    if (count > 0 && last >= held) refuse(`an array ends at element ${last} of a storage of ${held}`);
    const data = new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length);
    const values = Array.from({ length: count }, (_, i) => {
      let [at, rest] = [offset, i];
      for (let axis = shape.length - 1; axis >= 0; axis--) {
        at += (rest % shape[axis]) * strides[axis];
        rest = Math.floor(rest / shape[axis]);
      }
      const value = read(data, at * width, this.little);
      const fits = typeof value === 'number' || Number.isSafeInteger(Number(value));
      return fits ? Number(value) : refuse(`the number ${value} is too large`);
    });
    return new SavedArray(this.dtype, shape, values);
  }
}

const fieldsOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);

function isSizes(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && (size as number) >= 0);
}

function stridesOf(shape: readonly number[]): number[] {
  return shape.map((_, axis) => shape.slice(axis + 1).reduce((product, size) => product * size, 1));
}

type Room = Storage['room'];
type Call = (args: readonly unknown[], room: Room) => unknown;

/** `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, …)` */
const rebuildTensor: Call = ([storage, offset, shape, strides]) => {
  const fits = storage instanceof Storage && isSizes([offset]) && isSizes(shape) && isSizes(strides);
  if (!fits || strides.length !== shape.length) return refuse('it builds a tensor of no storage and sizes');
  return storage.view(offset as number, shape, strides);
};

/** `_reconstruct(numpy.ndarray, (0,), b'b')` */
const emptyNumpyArray: Call = ([type]) =>
  type instanceof Mentioned && type.dtype === null
    ? new SavedArray('uint8', [0], [])
    : refuse('it builds an array of a custom class');

/** The arguments that fill a NumPy array: (version, shape, dtype, whether in Fortran order, bytes). */
function fillNumpyArray(array: SavedArray, state: unknown, room: Room): void {
  const [, shape, dtype, fortran, data] = fieldsOf(state);
  const isArray = dtype instanceof NumpyDtype && data instanceof Uint8Array && isSizes(shape);
  if (!isArray) return refuse('a NumPy array does not contain numbers');
  const strides = fortran === true ? stridesOf([...shape].reverse()).reverse() : stridesOf(shape);
  const { values } = new Storage(dtype.dtype, data, room, dtype.little).view(0, shape, strides);
  const bytes = values.length * dtypes[dtype.dtype][2];
  if (bytes !== data.length) refuse(`a NumPy array [${shape.join(', ')}] has ${data.length} bytes`);
  Object.assign(array, { dtype: dtype.dtype, shape, values });
}

/** `dtype('i8', …)` */
const numpyDtype: Call = ([kind]) => {
  const dtype = typeof kind === 'string' && dtypeNames.find((one) => dtypes[one][1] === kind);
  return dtype ? new NumpyDtype(dtype) : refuse(`elements of ${JSON.stringify(kind)} are not supported`);
};

/** `scalar(dtype, bytes)` */
const numpyScalar: Call = ([dtype, data], room) => {
  if (!(dtype instanceof NumpyDtype) || !(data instanceof Uint8Array)) return refuse('it is not a number');
  return new Storage(dtype.dtype, data, room, dtype.little).view(0, [], []).values[0];
};

/** `encode(text, 'latin1')`, which is how bytes are written. */
const latin1: Call = ([value, encoding]) => {
  const isBytes = typeof value === 'string' && encoding === 'latin1' && !/[^\0-\xff]/u.test(value);
  if (!isBytes) return refuse('it encodes text as bytes, and it is not latin1');
  return Uint8Array.from(Buffer.from(value, 'latin1'));
};

function empty(make: () => unknown): Call {
  return (args) => (args.length === 0 ? make() : refuse('it fills a container by calling its class'));
}

/** All names that tensors and NumPy arrays need. */
const names = new Map<string, Call | Mentioned>([
  ...dtypeNames.map((dtype) => [dtypes[dtype][0] ?? '', new Mentioned(dtype)] as const),
  ['numpy.ndarray', new Mentioned(null)],
  ['torch._utils._rebuild_tensor_v2', rebuildTensor],
  ['collections.OrderedDict', empty(() => new Map())],
  ['numpy.dtype', numpyDtype],
  ['_codecs.encode', latin1],
  ['__builtin__.bytes', empty(() => new Uint8Array())],
  ['numpy.core.multiarray._reconstruct', emptyNumpyArray],
  ['numpy.core.multiarray.scalar', numpyScalar],
]);

const MARK = Symbol('mark');

/** Runs a pickle. `storage` returns the bytes of a storage by its number. */
function readPickle(bytes: Buffer, storage: (key: string) => Uint8Array | undefined): unknown {
  const stack: unknown[] = [];
  const memo = new Map<number, unknown>();
  const room: Room = { elements: MAX_ELEMENTS };
  let at = 0;

  const take = (count: number): Buffer => {
    const left = bytes.length - at;
    if (count > left) refuse(`it is truncated: ${count} bytes should follow, but only ${left} do`);
    at += count;
    return bytes.subarray(at - count, at);
  };
  const size = (width: number): number => take(width).readUIntLE(0, width);
  const top = (): unknown => {
    const value = stack.at(-1);
    return value === undefined || value === MARK ? refuse('it pops from an empty stack') : value;
  };
  const pop = (): unknown => {
    const value = top();
    stack.pop();
    return value;
  };
  const popMany = (count: number): unknown[] => Array.from({ length: count }, pop).reverse();
  /** Everything above the last mark, and the mark is gone. */
  const popMarked = (): unknown[] => {
    const mark = stack.lastIndexOf(MARK);
    if (mark < 0) refuse('it returns to a missing mark');
    return stack.splice(mark).slice(1);
  };
  const line = (): string => String(take(Math.max(0, bytes.indexOf('\n', at) + 1 - at))).trimEnd();
  const text = (): string => {
    const found = take(size(4));
    return isUtf8(found) ? found.toString('utf8') : refuse('a text is not UTF-8');
  };
  /** The two's complement of the given bytes, little-endian. */
  const long = (width: number): number | bigint => {
    const digits = take(size(width));
    if (digits.length > 32) refuse(`a number has ${digits.length} bytes`);
    const hex = Buffer.from(digits).reverse().toString('hex');
    const value = BigInt.asIntN(8 * digits.length, BigInt(`0x${hex || '0'}`));
    return Number.isSafeInteger(Number(value)) ? Number(value) : value;
  };
  const append = (items: readonly unknown[]): void => {
    const list = top();
    if (!Array.isArray(list)) return refuse('it appends to no list');
    for (const item of items) list.push(item);
  };
  const set = (items: readonly unknown[]): void => {
    const map = top();
    if (!(map instanceof Map) || items.length % 2 !== 0) return refuse('it sets a key of no dictionary');
    for (let i = 0; i < items.length; i += 2) (map as Map<unknown, unknown>).set(items[i], items[i + 1]);
  };
  const recall = (place: number): unknown => memo.get(place) ?? refuse('it recalls a value that it has not stored');
  const mention = (module: string, name: string): Call | Mentioned => {
    // NumPy 2 has another name for the same module.
    const full = `${module.replace(/^numpy\._core\./, 'numpy.core.')}.${name}`;
    return names.get(full) ?? refuse(`it may not use ${JSON.stringify(full.slice(0, 80))}`);
  };
  const reduce = (): unknown => {
    const [callee, args] = popMany(2);
    if (typeof callee !== 'function' || !Array.isArray(args)) return refuse('it calls something other than a function');
    return (callee as Call)(args, room);
  };
  const build = (): void => {
    const state = pop();
    const object = top();
    if (object instanceof SavedArray) return fillNumpyArray(object, state, room);
    // (version, byte order, …), the rest of which belongs to structured arrays.
    const [, order] = fieldsOf(state);
    if (!(object instanceof NumpyDtype)) return refuse('it sets the state of an object without one');
    if (typeof order !== 'string' || !/^[<|>=]$/.test(order)) refuse('a dtype has no byte order');
    object.little = order !== '>';
  };
  const outside = (): Storage => {
    const [kind, type, key, , count] = fieldsOf(pop());
    const dtype = type instanceof Mentioned ? type.dtype : null;
    if (kind !== 'storage' || dtype === null || typeof key !== 'string' || typeof count !== 'number') {
      return refuse('it refers to something other than a storage');
    }
    const data = /^\d+$/.test(key) ? storage(key) : undefined;
    if (data === undefined) return refuse(`the entry of storage ${JSON.stringify(key.slice(0, 40))} is not in it`);
    const isWhole = data.length === count * dtypes[dtype][2];
    if (!isWhole) refuse(`storage ${key} should have ${count} elements of ${dtype}, but has ${data.length} bytes`);
    return new Storage(dtype, data, room);
  };

  /** Instructions by their codes. Their result is pushed, unless it is undefined. */
  const instructions: Readonly<Partial<Record<number, () => unknown>>> = {
    0x28: () => MARK,
    0x4e: () => null,
    0x88: () => true,
    0x89: () => false,
    0x4a: () => take(4).readInt32LE(), // BININT
    0x4b: () => size(1), // BININT1
    0x4d: () => size(2), // BININT2
    0x8a: () => long(1), // LONG1
    0x8b: () => long(4), // LONG4
    0x47: () => take(8).readDoubleBE(), // BINFLOAT
    0x58: text, // BINUNICODE
    0x29: () => [], // EMPTY_TUPLE
    0x85: () => popMany(1), // TUPLE1
    0x86: () => popMany(2), // TUPLE2
    0x87: () => popMany(3), // TUPLE3
    0x74: popMarked, // TUPLE
    0x5d: () => [], // EMPTY_LIST
    0x7d: () => new Map(), // EMPTY_DICT
    0x68: () => recall(size(1)), // BINGET
    0x6a: () => recall(size(4)), // LONG_BINGET
    0x63: () => mention(line(), line()), // GLOBAL
    0x52: reduce, // REDUCE
    0x51: outside, // BINPERSID
    0x61: () => append(popMany(1)), // APPEND
    0x65: () => append(popMarked()), // APPENDS
    0x73: () => set(popMany(2)), // SETITEM
    0x75: () => set(popMarked()), // SETITEMS
    0x71: () => void memo.set(size(1), top()), // BINPUT
    0x72: () => void memo.set(size(4), top()), // LONG_BINPUT
    0x62: build, // BUILD
  };
  if (!take(2).equals(Buffer.of(0x80, 2))) refuse('its protocol is not 2, the one of torch.save');
  for (let code = size(1); code !== 0x2e; code = size(1)) {
    const instruction = instructions[code];
    if (instruction === undefined) return refuse(`an instruction is not supported: ${code} at byte ${at - 1}`);
    const value = instruction();
    if (value !== undefined) stack.push(value);
  }
  return pop();
}
