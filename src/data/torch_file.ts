/**
 * Files of `torch.save`: a zip with a pickle, which says what there is, and the bytes of each storage in an entry of its own. Read as data: the
 * pickle may use the few names below, which stand for functions of this file, and nothing else.
 */
import { unzipSync } from 'fflate';
import { DataError } from '../core/errors.js';
import { halfToFloat } from '../core/half.js';
import {
  PickledName,
  PickledObject,
  readPickle,
  pickleError,
  type PickleValue,
  type PickleFunction,
} from './pickle.js';

/** An array of a sample, its elements in C order. */
export class SavedArray extends PickledObject {
  constructor(
    readonly dtype: Dtype,
    readonly shape: readonly number[],
    /** Elements of 64 bits are numbers; those that a double does not hold are refused. */
    readonly values: readonly number[],
  ) {
    super();
  }
}

/** How an element is stored. */
interface Element {
  readonly bytes: number;
  readonly read: (view: DataView, at: number, little: boolean) => number | bigint;
}

const elements = {
  uint8: { bytes: 1, read: (view, at) => view.getUint8(at) },
  int8: { bytes: 1, read: (view, at) => view.getInt8(at) },
  bool: { bytes: 1, read: (view, at) => (view.getUint8(at) === 0 ? 0 : 1) },
  int16: { bytes: 2, read: (view, at, little) => view.getInt16(at, little) },
  uint16: { bytes: 2, read: (view, at, little) => view.getUint16(at, little) },
  int32: { bytes: 4, read: (view, at, little) => view.getInt32(at, little) },
  uint32: { bytes: 4, read: (view, at, little) => view.getUint32(at, little) },
  int64: { bytes: 8, read: (view, at, little) => view.getBigInt64(at, little) },
  uint64: { bytes: 8, read: (view, at, little) => view.getBigUint64(at, little) },
  float16: { bytes: 2, read: (view, at, little) => halfToFloat(view.getUint16(at, little)) },
  bfloat16: { bytes: 2, read: (view, at, little) => brain(view.getUint16(at, little)) },
  float32: { bytes: 4, read: (view, at, little) => view.getFloat32(at, little) },
  float64: { bytes: 8, read: (view, at, little) => view.getFloat64(at, little) },
} as const satisfies Readonly<Record<string, Element>>;
export type Dtype = keyof typeof elements;

/** torch's classes of storages. */
const storages: Readonly<Record<string, Dtype>> = {
  'torch.ByteStorage': 'uint8',
  'torch.CharStorage': 'int8',
  'torch.BoolStorage': 'bool',
  'torch.ShortStorage': 'int16',
  'torch.IntStorage': 'int32',
  'torch.LongStorage': 'int64',
  'torch.HalfStorage': 'float16',
  'torch.BFloat16Storage': 'bfloat16',
  'torch.FloatStorage': 'float32',
  'torch.DoubleStorage': 'float64',
};

/** NumPy's short names. */
const numpyKinds: Readonly<Record<string, Dtype>> = {
  u1: 'uint8',
  i1: 'int8',
  b1: 'bool',
  i2: 'int16',
  u2: 'uint16',
  i4: 'int32',
  u4: 'uint32',
  i8: 'int64',
  u8: 'uint64',
  f2: 'float16',
  f4: 'float32',
  f8: 'float64',
};

/** Views may repeat the elements of a small storage: no sample has as many as this. */
const MOST_ELEMENTS = 2 ** 24;
/** What the directory of a zip says of each entry takes so many bytes at least. */
const LEAST_ENTRY_BYTES = 46;
const MOST_AXES = 8;

/** Reads a file. Raises DataError naming `where` for one that torch did not write, is cut short, or holds anything but data. */
export function readTorchFile(bytes: Uint8Array, where: string): PickleValue {
  const { root, entries } = unzip(bytes, where);
  const room = { elements: MOST_ELEMENTS };
  if (text(entries.get(`${root}byteorder`) ?? new Uint8Array()) === 'big') {
    throw unreadable('it was written on a machine with the highest byte first', where);
  }
  const outside = (id: PickleValue): Storage => {
    const [kind, type, key, , count] = Array.isArray(id) ? (id as readonly PickleValue[]) : [];
    const dtype = type instanceof PickledName ? storages[type.name] : undefined;
    if (kind !== 'storage' || dtype === undefined || typeof key !== 'string' || typeof count !== 'number') {
      throw pickleError('refers to what is no storage', where);
    }
    const data = /^\d+$/.test(key) ? entries.get(`${root}data/${key}`) : undefined;
    if (data === undefined) {
      throw unreadable(`the entry of storage ${JSON.stringify(key.slice(0, 40))} is not in it`, where);
    }
    if (data.length !== count * elements[dtype].bytes) {
      throw unreadable(
        `storage ${key} is said to hold ${count} elements of ${dtype}, and has ${data.length} bytes`,
        where,
      );
    }
    return new Storage(dtype, data, room);
  };
  const pickle = entries.get(`${root}data.pkl`)!;
  return readPickle(pickle, { names, outside }, `${where}:${root}data.pkl`);
}

/** The entries of the zip, and the folder that they all lie in. Entries are stored as they are: nothing in the file can grow when it is read. */
function unzip(bytes: Uint8Array, where: string): { root: string; entries: ReadonlyMap<string, Uint8Array> } {
  if (bytes[0] === 0x80) {
    throw new DataError('a bare pickle, as torch wrote before version 1.6, is not read', {
      where,
      next: 'Load it in Python, if you trust it, and save it again: torch.save(torch.load(path), path).',
    });
  }
  let entries: Map<string, Uint8Array>;
  let [count, size] = [0, 0];
  try {
    const found = unzipSync(bytes, {
      filter: (entry) => {
        count += 1;
        size += entry.size;
        if (entry.compression !== 0) throw new Error(`its entry ${entry.name} is compressed, which torch does not do`);
        if (size > bytes.length || count * LEAST_ENTRY_BYTES > bytes.length) {
          throw new Error('its entries are said to be larger than the whole');
        }
        return true;
      },
    });
    entries = new Map(Object.entries(found));
  } catch (cause) {
    throw unreadable(cause instanceof Error ? cause.message : String(cause), where, cause);
  }
  const roots = [...entries.keys()].flatMap((name) => /^([^/]+\/)data\.pkl$/.exec(name)?.[1] ?? []);
  if (roots.length === 1) return { root: roots[0], entries };
  throw unreadable(`it has ${roots.length === 0 ? 'no' : 'more than one'} data.pkl`, where);
}

function unreadable(found: string, where: string, cause?: unknown): DataError {
  return new DataError(`not a readable file of torch.save: ${found}`, {
    where,
    next: 'The file is cut short or was never one: make or copy the dataset again.',
    cause,
  });
}

function text(bytes: Uint8Array): string {
  return new TextDecoder().decode(bytes).trim();
}

/** Elements in a row, which tensors look into. */
class Storage extends PickledObject {
  constructor(
    readonly dtype: Dtype,
    readonly bytes: Uint8Array,
    /** How many elements all views of a file may still have. */
    readonly room: { elements: number },
    readonly little = true,
  ) {
    super();
  }

  get count(): number {
    return Math.floor(this.bytes.length / elements[this.dtype].bytes);
  }

  /** The elements of a view, in C order; strides and offset in elements. Raises DataError for a view that leaves the storage. */
  view(offset: number, shape: readonly number[], strides: readonly number[], where: string): SavedArray {
    const count = shape.reduce((product, size) => product * size, 1);
    const last = shape.reduce((at, size, axis) => at + (size - 1) * strides[axis], offset);
    if (shape.length > MOST_AXES || count > this.room.elements) {
      throw pickleError(
        `holds arrays larger than any sample's: the last of shape [${shape.slice(0, MOST_AXES).join(', ')}]`,
        where,
      );
    }
    this.room.elements -= count;
    if (count > 0 && last >= this.count) {
      throw pickleError(`holds an array that ends at element ${last} of a storage of ${this.count}`, where);
    }
    const { bytes, read }: Element = elements[this.dtype];
    const data = new DataView(this.bytes.buffer, this.bytes.byteOffset, this.bytes.length);
    const values = Array.from({ length: count }, (_, i) => {
      let [at, rest] = [offset, i];
      for (let axis = shape.length - 1; axis >= 0; axis--) {
        at += (rest % shape[axis]) * strides[axis];
        rest = Math.floor(rest / shape[axis]);
      }
      const value = read(data, at * bytes, this.little);
      if (typeof value === 'number') return value;
      if (Number.isSafeInteger(Number(value))) return Number(value);
      throw pickleError(`holds the number ${value}, which is too large`, where);
    });
    return new SavedArray(this.dtype, shape, values);
  }
}

/** NumPy's description of elements. */
class NumpyDtype extends PickledObject {
  little = true;

  constructor(readonly dtype: Dtype) {
    super();
  }

  /** (version, byte order, …), the rest of which is of structured arrays. */
  override build(state: PickleValue, where: string): void {
    const order = Array.isArray(state) ? (state as readonly PickleValue[])[1] : null;
    if (order !== '<' && order !== '|' && order !== '>' && order !== '=') {
      throw pickleError('holds a dtype of no byte order', where);
    }
    this.little = order !== '>';
  }
}

/** A NumPy array, which is made empty and told later what it holds. */
class NumpyArray extends PickledObject {
  array: SavedArray | null = null;

  /** (version, shape, dtype, Fortran order, bytes). */
  override build(state: PickleValue, where: string): void {
    const [, shape, dtype, fortran, data] = Array.isArray(state) ? (state as readonly PickleValue[]) : [];
    this.array = numpyArray(data, dtype, shape, fortran === true, where);
  }
}

/** An array of these bytes. */
function numpyArray(
  data: PickleValue,
  dtype: PickleValue,
  shape: PickleValue,
  fortran: boolean,
  where: string,
): SavedArray {
  if (!(dtype instanceof NumpyDtype) || !(data instanceof Uint8Array) || !isSizes(shape)) {
    throw pickleError('holds a NumPy array of no numbers', where);
  }
  const storage = new Storage(dtype.dtype, data, { elements: MOST_ELEMENTS }, dtype.little);
  const strides = fortran ? stridesOf([...shape].reverse()).reverse() : stridesOf(shape);
  const array = storage.view(0, shape, strides, where);
  if (array.values.length * elements[dtype.dtype].bytes === data.length) return array;
  throw pickleError(`holds a NumPy array of shape [${shape.join(', ')}] with ${data.length} bytes`, where);
}

/** The arrays of a sample, which torch and NumPy write in different ways; null for anything else. */
export function arrayOf(value: PickleValue | undefined): SavedArray | null {
  if (value instanceof NumpyArray) return value.array;
  return value instanceof SavedArray ? value : null;
}

function stridesOf(shape: readonly number[]): number[] {
  const strides = new Array<number>(shape.length).fill(1);
  for (let axis = shape.length - 2; axis >= 0; axis--) strides[axis] = strides[axis + 1] * shape[axis + 1];
  return strides;
}

function isSizes(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.every((size) => Number.isSafeInteger(size) && (size as number) >= 0);
}

/** `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, …)` */
const rebuildTensor: PickleFunction = ([storage, offset, shape, strides], where) => {
  const fits = storage instanceof Storage && isSizes([offset]) && isSizes(shape) && isSizes(strides);
  if (!fits || strides.length !== shape.length) throw pickleError('builds a tensor of no storage and sizes', where);
  return storage.view(offset as number, shape, strides, where);
};

/** `_reconstruct(numpy.ndarray, (0,), b'b')` */
const emptyNumpyArray: PickleFunction = ([type], where) => {
  if (type instanceof PickledName && type.name === 'numpy.ndarray') return new NumpyArray();
  throw pickleError('builds an array of a class of its own', where);
};

/** `_frombuffer(bytes, dtype, shape, 'C' or 'F')`, which is how the newest protocol writes arrays. */
const numpyFromBuffer: PickleFunction = ([data, dtype, shape, order], where) =>
  numpyArray(data, dtype, shape, order === 'F', where);

/** `dtype('i8', …)` */
const numpyDtype: PickleFunction = ([kind], where) => {
  const dtype = typeof kind === 'string' ? numpyKinds[kind.replace(/^[<>|=]/, '')] : undefined;
  if (dtype !== undefined) return new NumpyDtype(dtype);
  throw pickleError(`holds elements of ${JSON.stringify(kind)}; allowed: ${Object.keys(numpyKinds).join(', ')}`, where);
};

/** `scalar(dtype, bytes)` */
const numpyScalar: PickleFunction = ([dtype, data], where) => {
  if (!(dtype instanceof NumpyDtype) || !(data instanceof Uint8Array)) {
    throw pickleError('holds a scalar of no number', where);
  }
  return new Storage(dtype.dtype, data, { elements: 1 }, dtype.little).view(0, [], [], where).values[0];
};

/** `encode(text, 'latin1')`, which is how older protocols write bytes. */
const latin1: PickleFunction = ([value, encoding], where) => {
  if (typeof value !== 'string' || encoding !== 'latin1') throw pickleError('encodes what are no bytes', where);
  const codes = [...value].map((character) => character.codePointAt(0)!);
  if (codes.some((code) => code > 255)) throw pickleError('encodes what are no bytes', where);
  return Uint8Array.from(codes);
};

/** Nothing in it. */
const empty =
  (make: () => PickleValue): PickleFunction =>
  (args, where) => {
    if (args.length === 0) return make();
    throw pickleError('fills a container by calling its class', where);
  };

/** All that tensors and NumPy arrays need. */
const names = new Map<string, PickleFunction | null>([
  ...Object.keys(storages).map((name) => [name, null] as const),
  ['numpy.ndarray', null],
  ['torch._utils._rebuild_tensor_v2', rebuildTensor],
  ['collections.OrderedDict', empty(() => new Map())],
  ['numpy.dtype', numpyDtype],
  ['_codecs.encode', latin1],
  ['__builtin__.bytes', empty(() => new Uint8Array())],
  ['builtins.bytes', empty(() => new Uint8Array())],
  // Before NumPy 2, and since.
  ...['numpy.core', 'numpy._core'].flatMap(
    (module) =>
      [
        [`${module}.multiarray._reconstruct`, emptyNumpyArray],
        [`${module}.multiarray.scalar`, numpyScalar],
        [`${module}.numeric._frombuffer`, numpyFromBuffer],
      ] as const,
  ),
]);

/** The upper half of a float32. */
function brain(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(0, bits);
  return view.getFloat32(0);
}
