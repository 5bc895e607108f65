/** Edit samples as .npz files: a zip of .npy arrays (version 1.0, bytes and 32-bit integers), as numpy.savez writes them. */
import { unzipSync, zipSync } from 'fflate';
import { DataError } from '../core/errors.js';
import { textOf } from '../core/text.js';
import type { CodeGrid, EditSample } from './types.js';

/** Writes named arrays, uncompressed. The same arrays give the same bytes. */
export function encodeNpz(arrays: Readonly<Record<string, NpyArray>>): Uint8Array {
  const entries = Object.entries(arrays).map(([name, array]) => [`${name}.npy`, encodeNpy(array)] as const);
  // A fixed date (zip has none before 1980) keeps the bytes independent of the clock.
  return zipSync(Object.fromEntries(entries), { level: 0, mtime: new Date(1980, 0, 1) });
}

/** A sample is an instruction, grids of codes and two images: one or two megabytes. */
const MAX_UNPACKED_BYTES = 256 * 2 ** 20;

function tooLarge(where: string): DataError {
  return new DataError(
    `unpacked, the .npz file has more than ${MAX_UNPACKED_BYTES / 2 ** 20} MiB, which no sample has`,
    {
      where,
      next: 'Check its origin; create or copy the dataset again.',
    },
  );
}

/**
 * Reads the named arrays of a zip, stored or deflated. Raises DataError naming `where`, also for one that unpacks to
 * more than 256 MiB.
 */
export function decodeNpz(bytes: Uint8Array, where: string): Map<string, NpyArray> {
  let entries: Record<string, Uint8Array>;
  let unpacked = 0;
  try {
    entries = unzipSync(bytes, {
      // An entry is cut at its stated size.
      filter: ({ originalSize }) => {
        unpacked += originalSize;
        if (unpacked > MAX_UNPACKED_BYTES) throw tooLarge(where);
        return true;
      },
    });
  } catch (cause) {
    if (cause instanceof DataError) throw cause;
    throw new DataError(`not a readable .npz file (${cause instanceof Error ? cause.message : String(cause)})`, {
      where,
      next: 'The file is cut short or was never one: make or copy the dataset again.',
      cause,
    });
  }
  const arrays = new Map<string, NpyArray>();
  for (const [name, entry] of Object.entries(entries)) {
    arrays.set(name.replace(/\.npy$/, ''), decodeNpy(entry, `${where}:${name}`));
  }
  return arrays;
}

function text(value: string): NpyArray {
  const data = new TextEncoder().encode(value);
  return { dtype: 'uint8', shape: [data.length], data };
}

function grid(codes: CodeGrid): NpyArray {
  return { dtype: 'int32', shape: [codes.height, codes.width], data: codes.codes };
}

/** A sample as this program makes them: with its source's pixels. */
type DrawnSample = Omit<EditSample, 'id'> & { readonly sourcePng: Uint8Array };

/** A sample as the bytes of its file. Parts that are null are left out. */
export function encodeEditSample(sample: DrawnSample): Uint8Array {
  const png = (data: Uint8Array): NpyArray => ({ dtype: 'uint8', shape: [data.length], data });
  return encodeNpz({
    instruction: text(sample.instruction),
    source_tokens: grid(sample.source),
    source_png: png(sample.sourcePng),
    ...(sample.target === null ? {} : { target_tokens: grid(sample.target) }),
    ...(sample.targetPng === null ? {} : { target_png: png(sample.targetPng) }),
    ...(sample.rationale === null ? {} : { rationale: text(sample.rationale) }),
  });
}

/** A sample from the bytes of its file. Raises DataError naming `where` and the field that is missing or wrong. */
export function decodeEditSample(bytes: Uint8Array, id: string, where: string): EditSample {
  const arrays = decodeNpz(bytes, where);
  const wrong = (name: string, wanted: string): DataError => {
    const found = arrays.get(name);
    const what = found === undefined ? 'is missing' : `is ${found.dtype} [${found.shape.join(', ')}]`;
    return new DataError(`the field '${name}' ${what}; allowed: ${wanted}`, {
      where,
      next: 'Create the dataset again with fields instruction, source_tokens, source_png and, if labeled, target_tokens, target_png, rationale.',
    });
  };
  const byteField = (name: string): Uint8Array => {
    const array = arrays.get(name);
    if (array?.dtype !== 'uint8' || array.shape.length !== 1) throw wrong(name, 'uint8 with one axis');
    return array.data;
  };
  const gridField = (name: string): CodeGrid => {
    const array = arrays.get(name);
    if (array?.dtype !== 'int32' || array.shape.length !== 2) throw wrong(name, 'int32 [height, width]');
    if (array.data.some((code) => code < 0)) throw wrong(name, 'codes of 0 and above');
    return { height: array.shape[0], width: array.shape[1], codes: array.data };
  };
  const textField = (name: string): string => textOf(byteField(name), `${where}: field '${name}'`);
  const optional = <T>(name: string, read: (name: string) => T): T | null => (arrays.has(name) ? read(name) : null);
  return {
    id,
    instruction: textField('instruction'),
    source: gridField('source_tokens'),
    sourcePng: byteField('source_png'),
    target: optional('target_tokens', gridField),
    targetPng: optional('target_png', byteField),
    rationale: optional('rationale', textField),
  };
}

/** An array with its shape, axes in C order. */
export type NpyArray =
  | { readonly dtype: 'uint8'; readonly shape: readonly number[]; readonly data: Uint8Array }
  | { readonly dtype: 'int32'; readonly shape: readonly number[]; readonly data: Int32Array };

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
const DESCRIPTIONS = { uint8: '|u1', int32: '<i4' } as const;

/** Serializes an array as numpy.save does (little-endian, C order). */
export function encodeNpy(array: NpyArray): Uint8Array {
  const shape = array.shape.length === 1 ? `${array.shape[0]},` : array.shape.join(', ');
  const fields = `{'descr': '${DESCRIPTIONS[array.dtype]}', 'fortran_order': False, 'shape': (${shape}), }`;
  // The header, newline included, is padded so that the data begin at a multiple of 64.
  const header = `${fields.padEnd(Math.ceil((fields.length + 11) / 64) * 64 - 11)}\n`;
  const body = new Uint8Array(array.data.buffer, array.data.byteOffset, array.data.byteLength);
  const out = Buffer.alloc(10 + header.length + body.length);
  out.set(MAGIC);
  out[6] = 1;
  out.writeUInt16LE(header.length, 8);
  out.write(header, 10, 'latin1');
  out.set(body, 10 + header.length);
  return out;
}

/**
 * Parses an array. The types int64 and uint16, which NumPy users often save, are narrowed to int32. Raises DataError naming
 * `where`.
 */
export function decodeNpy(bytes: Uint8Array, where: string): NpyArray {
  const fail = (found: string): DataError =>
    new DataError(`not a readable .npy array: ${found}`, {
      where,
      next: 'Save it with numpy as uint8 or int32, C order (numpy.ascontiguousarray), then try again.',
    });
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (buffer.length < 10 || MAGIC.some((byte, i) => buffer[i] !== byte)) throw fail('it has another header');
  const wide = buffer[6] >= 2;
  if (wide && buffer.length < 12) throw fail('it is cut short');
  const start = wide ? 12 : 10;
  const end = start + (wide ? buffer.readUInt32LE(8) : buffer.readUInt16LE(8));
  const header = buffer.toString('latin1', start, end);
  const descr = /'descr'\s*:\s*'([^']*)'/.exec(header)?.[1];
  const dimensions = /'shape'\s*:\s*\(([^)]*)\)/.exec(header)?.[1];
  if (descr === undefined || dimensions === undefined) throw fail('its header names no dtype or shape');
  if (/'fortran_order'\s*:\s*True/.test(header)) throw fail('it is in Fortran order');
  const shape = dimensions
    .split(',')
    .filter((part) => part.trim() !== '')
    .map(Number);
  const count = shape.reduce((product, size) => product * size, 1);
  const width = ({ '|u1': 1, '<u2': 2, '<i4': 4, '<i8': 8 } as Readonly<Record<string, number>>)[descr];
  if (width === undefined) throw fail(`its dtype is ${descr}; allowed are uint8, uint16, int32 and int64`);
  if (buffer.length - end !== count * width) {
    throw fail(`its shape (${shape.join(', ')}) needs ${count * width} bytes, ${buffer.length - end} are there`);
  }
  if (width === 1) return { dtype: 'uint8', shape, data: new Uint8Array(buffer.subarray(end)) };
  const data = new Int32Array(count);
  for (let i = 0; i < count; i++) {
    const at = end + i * width;
    if (width === 8) {
      const value = buffer.readBigInt64LE(at);
      if (value !== BigInt.asIntN(32, value)) throw fail(`the value ${value} does not fit 32 bits`);
      data[i] = Number(value);
    } else {
      data[i] = width === 4 ? buffer.readInt32LE(at) : buffer.readUInt16LE(at);
    }
  }
  return { dtype: 'int32', shape, data };
}
