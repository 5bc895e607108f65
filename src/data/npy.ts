/** NumPy's .npy format, version 1.0, for the two kinds of array that samples hold: bytes and 32-bit integers. */
import { DataError } from '../core/errors.js';

/** An array with its shape, axes in C order. */
export type NpyArray =
  | { readonly dtype: 'uint8'; readonly shape: readonly number[]; readonly data: Uint8Array }
  | { readonly dtype: 'int32'; readonly shape: readonly number[]; readonly data: Int32Array };

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
const DESCRIPTIONS = { uint8: '|u1', int32: '<i4' } as const;

/** Serialises an array as numpy.save does (little-endian, C order). */
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

/** Parses an array; int64 and uint16 that NumPy users commonly save are narrowed to int32. Raises DataError naming `where`. */
export function decodeNpy(bytes: Uint8Array, where: string): NpyArray {
  const fail = (found: string): DataError =>
    new DataError(`not a readable .npy array: ${found}`, {
      where,
      next: 'Save it with numpy as uint8 or int32, C order (numpy.ascontiguousarray), then try again.',
    });
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
  if (buffer.length < 10 || MAGIC.some((byte, i) => buffer[i] !== byte)) throw fail('it does not begin as one');
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
