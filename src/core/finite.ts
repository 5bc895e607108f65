/** Whether tensors are finite: one NaN or infinite weight spoils everything that is computed with it. */
import { closeSync, openSync, readSync } from 'node:fs';
import { CheckpointError } from './errors.js';
import { HalfTensor, halfToFloat } from './half.js';
import { readSafetensorsIndex, type FloatTensor, type TensorEntry } from './safetensors.js';

/** Bytes read at a time. A multiple of every number's size. */
const PIECE_BYTES = 8 * 1024 * 1024;

/** How numbers of one format are scanned. A number whose exponent has all bits set is NaN or infinite (IEEE 754). bfloat16 is the upper half of a float. */
interface Format {
  readonly bytes: number;
  readonly view: (piece: Uint8Array) => Uint32Array | Uint16Array;
  readonly exponent: number;
  readonly toNumber: (bits: number) => number;
}

const words16 = (piece: Uint8Array): Uint16Array => new Uint16Array(piece.buffer, piece.byteOffset, piece.length / 2);
/** The float32 with these bits. */
export const floatOf = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0];

const FLOAT32: Format = {
  bytes: 4,
  view: (piece) => new Uint32Array(piece.buffer, piece.byteOffset, piece.length / 4),
  exponent: 0x7f800000,
  toNumber: floatOf,
};

const FLOAT16: Format = { bytes: 2, view: words16, exponent: 0x7c00, toNumber: halfToFloat };

/** The formats that have non-finite numbers. */
const FORMATS: Readonly<Partial<Record<TensorEntry['dtype'], Format>>> = {
  F32: FLOAT32,
  BF16: { bytes: 2, view: words16, exponent: 0x7f80, toNumber: (bits) => floatOf(bits << 16) },
  F16: FLOAT16,
};

/** The index of the first NaN or infinite number. -1 if all are finite. */
function firstNotFinite(words: Uint32Array | Uint16Array, exponent: number): number {
  for (let i = 0; i < words.length; i++) if ((words[i] & exponent) === exponent) return i;
  return -1;
}

/** Raises CheckpointError, naming the tensor, for the first non-finite number. */
export function requireFinite(tensors: Iterable<readonly [string, FloatTensor]>, where?: string): void {
  const details = where === undefined ? {} : { where };
  for (const [name, tensor] of tensors) {
    const [numbers, format] = tensor instanceof HalfTensor ? [tensor.halves, FLOAT16] : [tensor.data, FLOAT32];
    const words = format.view(new Uint8Array(numbers.buffer, numbers.byteOffset, numbers.byteLength));
    const at = firstNotFinite(words, format.exponent);
    if (at >= 0) throw new CheckpointError(notFinite(name, format.toNumber(words[at]), at, words.length), details);
  }
}

/**
 * Describes the first non-finite number in a safetensors file. Null if all are finite. Reads the file in chunks. Raises CheckpointError for
 * a malformed file and the system's error for an unreadable one.
 */
export function notFiniteIn(path: string): string | null {
  const { entries } = readSafetensorsIndex(path);
  const piece = new Uint8Array(PIECE_BYTES);
  const file = openSync(path, 'r');
  try {
    for (const [name, { dtype, offset, length }] of entries) {
      const format = FORMATS[dtype];
      if (format === undefined) continue;
      for (let done = 0; done < length;) {
        const wanted = Math.min(PIECE_BYTES, length - done);
        let got = 0;
        while (got < wanted) {
          const read = readSync(file, piece, got, wanted - got, offset + done + got);
          if (read === 0) throw new CheckpointError(`the file ends within tensor ${name}`, { where: path });
          got += read;
        }
        const words = format.view(piece.subarray(0, wanted));
        const at = firstNotFinite(words, format.exponent);
        const place = done / format.bytes + at;
        if (at >= 0) return notFinite(name, format.toNumber(words[at]), place, length / format.bytes);
        done += wanted;
      }
    }
    return null;
  } finally {
    closeSync(file);
  }
}

function notFinite(name: string, value: number, at: number, count: number): string {
  return `tensor ${name} contains a number that is not finite (${value}, number ${at + 1} of ${count})`;
}
