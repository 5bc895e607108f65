/** Reading and writing `.safetensors` files (huggingface/safetensors: 8-byte header length, JSON header, raw little-endian data). */
import { closeSync, fstatSync, readSync, statSync } from 'node:fs';
import { CheckpointError, must, RunError } from './errors.js';
import { brainsToHalves, floatsToHalves, floatToHalf, HalfTensor, halvesToFloats, requireHalves } from './half.js';
import { openPlain } from './plain_file.js';
import { refuseLfsPointer } from './text.js';

export type StoredDtype = 'F32' | 'F16' | 'BF16' | 'I64' | 'I32' | 'U8' | 'BOOL';

/** A float32 tensor with its shape. */
export interface FloatTensor {
  readonly shape: readonly number[];
  readonly data: Float32Array;
}

/** The place of a tensor in a file, in bytes from the file's start. */
export interface TensorEntry {
  readonly dtype: StoredDtype;
  readonly shape: readonly number[];
  readonly offset: number;
  readonly length: number;
}

/** Bytes per number. */
const BYTES: Readonly<Record<StoredDtype, number>> = { F32: 4, F16: 2, BF16: 2, I64: 8, I32: 4, U8: 1, BOOL: 1 };

const MAX_HEADER_BYTES = 100_000_000;
/** Enough to recognize a Git LFS pointer. */
const POINTER_BYTES = 64;

/** Read at a time: one system call is limited to 2 GiB. */
const READ_PIECE_BYTES = 64 * 1024 * 1024;

/**
 * The bytes of a file of float32 tensors, in the order of the map: the header, then one view of each tensor. Nothing is copied, so a file
 * may be larger than any buffer. The views change with the tensors until they are written. Data starts at a multiple of 8 bytes.
 */
export function safetensorsPieces(
  tensors: ReadonlyMap<string, FloatTensor>,
  metadata: Record<string, string> = {},
): Uint8Array[] {
  const start = safetensorsHeader(new Map([...tensors].map(([name, { shape }]) => [name, shape])), 'F32', metadata);
  return [
    start,
    ...[...tensors.values()].map(({ data }) => new Uint8Array(data.buffer, data.byteOffset, data.byteLength)),
  ];
}

/** Number formats for writing, with their bytes per number. */
export const DTYPE_BYTES = { F32: 4, BF16: 2, F16: 2 } as const;
export type WrittenDtype = keyof typeof DTYPE_BYTES;

/** The header of tensors that follow each other in the order of the map. */
export function safetensorsHeader(
  shapes: ReadonlyMap<string, readonly number[]>,
  dtype: WrittenDtype,
  metadata: Record<string, string> = {},
): Uint8Array {
  return headerOf(
    new Map(
      [...shapes].map(([name, shape]) => [name, { dtype, shape, length: DTYPE_BYTES[dtype] * shape.reduce(times, 1) }]),
    ),
    metadata,
  );
}

const times = (product: number, size: number): number => product * size;

/** A tensor as bytes in a file. */
export interface StoredTensor {
  readonly dtype: StoredDtype;
  readonly shape: readonly number[];
  readonly bytes: Uint8Array;
}

/** The whole file of tensors of different number formats, in the order of the map. */
export function storedSafetensors(
  tensors: ReadonlyMap<string, StoredTensor>,
  metadata: Record<string, string> = {},
): Buffer {
  const entries = [...tensors].map(
    ([name, { dtype, shape, bytes }]) => [name, { dtype, shape, length: bytes.length }] as const,
  );
  const header = headerOf(new Map(entries), metadata);
  return Buffer.concat([header, ...[...tensors.values()].map(({ bytes }) => bytes)]);
}

function headerOf(
  tensors: ReadonlyMap<string, Omit<TensorEntry, 'offset'>>,
  metadata: Record<string, string>,
): Uint8Array {
  const header: Record<string, unknown> = Object.keys(metadata).length > 0 ? { __metadata__: metadata } : {};
  let offset = 0;
  for (const [name, { dtype, shape, length }] of tensors) {
    header[name] = { dtype, shape, data_offsets: [offset, offset + length] };
    offset += length;
  }
  let text = JSON.stringify(header);
  text = text.padEnd(Math.ceil(Buffer.byteLength(text) / 8) * 8 - Buffer.byteLength(text) + text.length, ' ');
  const head = Buffer.from(text, 'utf8');
  const start = new Uint8Array(8 + head.length);
  new DataView(start.buffer).setBigUint64(0, BigInt(head.length), true);
  start.set(head, 8);
  return start;
}

/** Numbers as stored in a file. Formats of fewer bits are rounded to nearest even. Beyond 65504, float16 is Infinity. */
export function toStoredBytes(data: Float32Array, dtype: WrittenDtype): Uint8Array {
  if (dtype === 'F32') return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const bits = new Uint32Array(data.buffer, data.byteOffset, data.length);
  // A loop: `from` with a function builds a list of all elements first, which ends the process beyond 10^8 of them.
  const out = new Uint16Array(bits.length);
  const of = dtype === 'BF16' ? floatToBrain : floatToHalf;
  for (let i = 0; i < bits.length; i++) out[i] = of(bits[i]);
  return new Uint8Array(out.buffer);
}

/** The upper half of a float's bits, rounded. */
function floatToBrain(bits: number): number {
  if ((bits & 0x7fffffff) > 0x7f800000) return (bits >>> 16) | 0x40;
  return (bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16;
}

/** Encodes a whole file in one buffer, for models of at most 4 GiB. */
export function encodeSafetensors(
  tensors: ReadonlyMap<string, FloatTensor>,
  metadata: Record<string, string> = {},
): Uint8Array {
  const pieces = safetensorsPieces(tensors, metadata);
  const out = new Uint8Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}

/** Reads only the header: the file's tensors and their places. Raises CheckpointError on a malformed file. */
export function readSafetensorsIndex(path: string): {
  entries: Map<string, TensorEntry>;
  metadata: Record<string, string>;
} {
  const file = openSafetensors(path);
  try {
    const prefix = readAt(file, path, 0, 8);
    const headerLength = Number(new DataView(prefix.buffer, prefix.byteOffset, 8).getBigUint64(0, true));
    if (headerLength < 2 || headerLength > MAX_HEADER_BYTES) {
      refuseLfsPointer(readAt(file, path, 0, Math.min(fstatSync(file).size, POINTER_BYTES)), path, CheckpointError);
      throw malformed(path, `header length ${headerLength}`);
    }
    const { __metadata__: metadata, ...tensors } = parseHeader(readAt(file, path, 8, headerLength), path);
    const start = 8 + headerLength;
    const entries = Object.entries(tensors).map(([name, entry]) => [name, toEntry(entry, start, name, path)] as const);
    refuseOverlaps(entries, path);
    return { entries: new Map(entries), metadata: (metadata ?? {}) as Record<string, string> };
  } finally {
    closeSync(file);
  }
}

/** The names of the tensors in a file's bytes. Raises CheckpointError on a malformed header. */
export function tensorNamesIn(bytes: Uint8Array, path: string): string[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const headerLength = bytes.length < 8 ? 0 : Number(view.getBigUint64(0, true));
  if (headerLength < 2 || headerLength > bytes.length - 8) throw malformed(path, `header length ${headerLength}`);
  return Object.keys(parseHeader(bytes.subarray(8, 8 + headerLength), path)).filter((name) => name !== '__metadata__');
}

/** Overlapping tensors can make gigabytes of a small file. In this format every byte belongs to one tensor. */
function refuseOverlaps(entries: readonly (readonly [string, TensorEntry])[], path: string): void {
  let [before, end] = ['', 0];
  for (const [name, { offset, length }] of [...entries].sort(([, a], [, b]) => a.offset - b.offset)) {
    if (length === 0) continue;
    if (offset < end) throw malformed(path, `${before} and ${name} overlap`);
    [before, end] = [name, offset + length];
  }
}

/** A tensor's entry of a header whose data begin at `start`. The dtype may be unsupported, which readers of the tensor report. */
function toEntry(found: unknown, start: number, name: string, path: string): TensorEntry {
  const { dtype, shape, data_offsets: offsets } = Object(found) as Readonly<Record<string, unknown>>;
  const sizes = sizesIn(shape);
  const [from, to, ...more] = sizesIn(offsets) ?? [];
  if (typeof dtype !== 'string' || sizes === null || to === undefined || more.length > 0 || from > to) {
    throw malformed(path, `its header does not locate ${name}`);
  }
  const length = to - from;
  const bytes = (BYTES as Readonly<Record<string, number>>)[dtype];
  if (bytes !== undefined && length !== bytes * sizes.reduce(times, 1)) {
    throw malformed(path, `${name} is ${dtype} of shape [${sizes.join(', ')}], and has ${length} bytes`);
  }
  return { dtype: dtype as StoredDtype, shape: sizes, offset: start + from, length };
}

function sizesIn(found: unknown): number[] | null {
  const isSize = (size: unknown): boolean => typeof size === 'number' && Number.isSafeInteger(size) && size >= 0;
  return Array.isArray(found) && found.every(isSize) ? (found as number[]) : null;
}

/** The format of numbers in memory. */
export type StorageDtype = 'float32' | 'float16';

/** Chooses the format in memory by tensor name. */
export type StorageDtypeOf = (name: string) => StorageDtype;

/** All in float32. */
export const inFloat32: StorageDtypeOf = () => 'float32';

export interface ReadOptions {
  /** Read at a time. */
  readonly pieceBytes?: number;
  /** 'float16' reads tensors of two or more axes as `HalfTensor`s. By default all are float32. */
  readonly held?: StorageDtype;
}

/**
 * Reads every tensor (or those named) as float32, widening bfloat16 and float16. Raises CheckpointError for a tensor that is missing or of
 * another type, and with `held: 'float16'` for a number beyond its range.
 */
export function readSafetensors(
  path: string,
  names?: readonly string[],
  { pieceBytes = READ_PIECE_BYTES, held = 'float32' }: ReadOptions = {},
): Map<string, FloatTensor> {
  const { entries } = readSafetensorsIndex(path);
  const file = openSafetensors(path);
  try {
    const out = new Map<string, FloatTensor>();
    for (const name of names ?? entries.keys()) {
      const entry = entries.get(name);
      if (entry === undefined) throw new CheckpointError(`tensor ${name} is not in the file`, { where: path });
      const bytes = readAt(file, path, entry.offset, entry.length, pieceBytes);
      const { shape } = entry;
      const tensor =
        held === 'float16' && shape.length > 1
          ? new HalfTensor(shape, narrow(bytes, entry, name, path))
          : { shape, data: widen(bytes, entry, name, path) };
      out.set(name, tensor);
    }
    return out;
  } finally {
    closeSync(file);
  }
}

/** A tensor in a file. */
export interface TensorPlace {
  readonly path: string;
  readonly name: string;
}

/** Whether two tensors have the same shape and numbers, in whatever formats. Stops at the first difference. Raises the errors of `readSafetensors`. */
export function areEqualTensors(a: TensorPlace, b: TensorPlace): boolean {
  const places = [a, b].map(({ path, name }) => {
    checkSafetensors(path, [name]);
    return { path, name, entry: must(readSafetensorsIndex(path).entries.get(name), name) };
  });
  const [{ entry: first }, { entry: second }] = places;
  if (first.shape.join() !== second.shape.join()) return false;
  const files = places.map(({ path }) => openSafetensors(path));
  try {
    const count = first.shape.reduce(times, 1);
    for (let from = 0; from < count; from += COMPARED_NUMBERS) {
      const numbers = Math.min(COMPARED_NUMBERS, count - from);
      const [left, right] = places.map(({ path, name, entry }, i) => {
        const size = BYTES[entry.dtype];
        return widen(readAt(files[i], path, entry.offset + from * size, numbers * size), entry, name, path);
      });
      if (!left.every((value, i) => value === right[i])) return false;
    }
    return true;
  } finally {
    files.forEach(closeSync);
  }
}

/** Numbers compared at a time. */
const COMPARED_NUMBERS = 4 * 1024 * 1024;

/**
 * Checks by a file's header and size alone whether these tensors can be read, and returns their shapes. Raises CheckpointError as
 * `readSafetensors`.
 */
export function checkSafetensors(path: string, names: readonly string[]): Map<string, readonly number[]> {
  const { entries } = readSafetensorsIndex(path);
  const { size } = statSync(path);
  return new Map(
    names.map((name) => {
      const entry = entries.get(name);
      if (entry === undefined) throw new CheckpointError(`tensor ${name} is not in the file`, { where: path });
      if (!WEIGHT_DTYPES.has(entry.dtype)) throw noWeights(entry.dtype, name, path);
      const end = entry.offset + entry.length;
      if (end > size) throw malformed(path, `it ends after ${size} bytes, ${end} are needed`);
      return [name, entry.shape];
    }),
  );
}

/** Formats that can be widened to float32. */
export const WEIGHT_DTYPES: ReadonlySet<string> = new Set(['F32', 'BF16', 'F16'] satisfies StoredDtype[]);

function noWeights(dtype: string, name: string, path: string): CheckpointError {
  return new CheckpointError(`tensor ${name} has dtype ${dtype}, weights must be F32, F16 or BF16`, { where: path });
}

function openSafetensors(path: string): number {
  let file: number | null;
  try {
    file = openPlain(path);
  } catch (cause) {
    if (!(cause instanceof RunError)) throw cause;
    throw new CheckpointError(`cannot open the file: ${cause.message}`, { where: path, cause });
  }
  if (file === null) throw new CheckpointError('cannot open the file: it does not exist', { where: path });
  return file;
}

function readAt(file: number, path: string, offset: number, length: number, pieceBytes = READ_PIECE_BYTES): Uint8Array {
  // Checked before allocating: a header can claim any length.
  const { size } = fstatSync(file);
  if (offset + length > size) throw malformed(path, `it ends after ${size} bytes, ${offset + length} are needed`);
  const out = new Uint8Array(length);
  let done = 0;
  while (done < length) {
    const read = readSync(file, out, done, Math.min(pieceBytes, length - done), offset + done);
    if (read === 0) throw malformed(path, `it ends after ${offset + done} bytes, ${offset + length} are needed`);
    done += read;
  }
  return out;
}

function parseHeader(bytes: Uint8Array, path: string): Readonly<Record<string, unknown>> {
  let header: unknown;
  try {
    header = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (cause) {
    throw malformed(path, 'its header is not JSON', cause);
  }
  if (typeof header !== 'object' || header === null || Array.isArray(header)) {
    throw malformed(path, 'its header does not name tensors');
  }
  return header as Record<string, unknown>;
}

function malformed(path: string, detail: string, cause?: unknown): CheckpointError {
  return new CheckpointError(`not a whole safetensors file: ${detail}`, { where: path, cause });
}

const words = ({ buffer, byteOffset, byteLength }: Uint8Array): Uint16Array =>
  new Uint16Array(buffer, byteOffset, byteLength / 2);

function widen(bytes: Uint8Array, entry: TensorEntry, name: string, path: string): Float32Array {
  switch (entry.dtype) {
    case 'F32':
      return new Float32Array(bytes.buffer, bytes.byteOffset, bytes.byteLength / 4);
    case 'BF16': {
      const half = words(bytes);
      const bits = new Uint32Array(half.length);
      for (let i = 0; i < half.length; i++) bits[i] = half[i] << 16;
      return new Float32Array(bits.buffer);
    }
    case 'F16':
      return halvesToFloats(words(bytes));
    case 'I64':
    case 'I32':
    case 'U8':
    case 'BOOL':
      throw noWeights(entry.dtype, name, path);
  }
}

/** The numbers in half precision. */
function narrow(bytes: Uint8Array, entry: TensorEntry, name: string, path: string): Uint16Array {
  if (entry.dtype === 'F16') return words(bytes);
  const floatAt = (index: number): number => {
    const size = BYTES[entry.dtype];
    return widen(bytes.slice(index * size, (index + 1) * size), entry, name, path)[0];
  };
  const halves =
    entry.dtype === 'BF16' ? brainsToHalves(words(bytes)) : floatsToHalves(widen(bytes, entry, name, path));
  requireHalves(name, halves, floatAt, path);
  return halves;
}

/** Converts tensors of two or more axes to `HalfTensor`s, in place, if `heldOf` returns float16 for their names. Raises the errors of `narrowed`. */
export function narrowMatrices(tensors: Map<string, FloatTensor>, heldOf: StorageDtypeOf): void {
  for (const [name, tensor] of tensors) {
    if (tensor.shape.length < 2 || tensor instanceof HalfTensor || heldOf(name) === 'float32') continue;
    tensors.set(name, narrowed(name, tensor));
  }
}

/** A tensor in half precision. Raises CheckpointError, naming the tensor, for a number beyond its range. */
export function narrowed(name: string, { shape, data }: FloatTensor): HalfTensor {
  const halves = floatsToHalves(data);
  requireHalves(name, halves, (index) => data[index]);
  return new HalfTensor(shape, halves);
}
