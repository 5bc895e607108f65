/** Whether the numbers of tensors are finite: a weight that is NaN or infinite spoils everything that is computed with it. */
import { closeSync, openSync, readSync } from 'node:fs';
import { CheckpointError } from './errors.js';
import { HalfTensor, halfToFloat } from './half.js';
import { readSafetensorsIndex, type FloatTensor, type TensorEntry } from './safetensors.js';

/** Bytes that are read at a time; a multiple of every number's size. */
const PIECE_BYTES = 8 * 1024 * 1024;

/** How a number format is scanned: a number whose exponent has all bits set is NaN or infinite (IEEE 754; bfloat16 is a float's upper half). */
interface Format {
  readonly bytes: number;
  readonly view: (piece: Uint8Array) => Uint32Array | Uint16Array;
  readonly exponent: number;
  readonly toNumber: (bits: number) => number;
}

const words16 = (piece: Uint8Array): Uint16Array => new Uint16Array(piece.buffer, piece.byteOffset, piece.length / 2);
/** The float32 of these bits. */
export const floatOf = (bits: number): number => new Float32Array(Uint32Array.of(bits).buffer)[0];

const FLOAT32: Format = {
  bytes: 4,
  view: (piece) => new Uint32Array(piece.buffer, piece.byteOffset, piece.length / 4),
  exponent: 0x7f800000,
  toNumber: floatOf,
};

const FLOAT16: Format = { bytes: 2, view: words16, exponent: 0x7c00, toNumber: halfToFloat };

/** The formats that have numbers that are not finite. */
const FORMATS: Readonly<Partial<Record<TensorEntry['dtype'], Format>>> = {
  F32: FLOAT32,
  BF16: { bytes: 2, view: words16, exponent: 0x7f80, toNumber: (bits) => floatOf(bits << 16) },
  F16: FLOAT16,
};

/** The place of the first number that is NaN or infinite; -1 where all are finite. */
function firstNotFinite(words: Uint32Array | Uint16Array, exponent: number): number {
  for (let i = 0; i < words.length; i++) if ((words[i] & exponent) === exponent) return i;
  return -1;
}

/** Raises CheckpointError, with the tensor's name, for the first of these tensors that holds a number that is not finite. */
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
 * What is wrong with the first tensor of a safetensors file that holds a number that is not finite; null where all are finite. The file is read
 * in pieces. Raises CheckpointError for a malformed file and what the system says of one that cannot be read.
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
  return `tensor ${name} holds a number that is not finite (${value}, number ${at + 1} of ${count})`;
}
