/** IEEE half precision (float16) numbers, and tensors of them. */
import { CheckpointError, InternalError } from './errors.js';

/** The exponent bits. If all are set, a half is NaN or infinite. */
const EXPONENT = 0x7c00;

/** A float's bits in half precision, rounded to nearest even. Infinity beyond 65504. */
export function floatToHalf(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;
  // 65520 is as close to 65504 as to the next power of two.
  if (size >= 0x477ff000) return sign | EXPONENT;
  // Below 2^-14 numbers are multiples of 2^-24.
  if (size < 0x38800000) {
    const shift = 126 - (size >>> 23);
    if (shift > 24) return sign;
    const fraction = (size & 0x7fffff) | 0x800000;
    const kept = fraction >>> shift;
    return sign | (kept + roundsUp(fraction & ((1 << shift) - 1), shift, kept));
  }
  const kept = (size - 0x38000000) >>> 13;
  return sign | (kept + roundsUp(size & 0x1fff, 13, kept));
}

/** 1 to round up: the cut bits exceed half of the last kept bit, or equal half and that bit is set. */
function roundsUp(cut: number, bits: number, kept: number): 0 | 1 {
  const half = 2 ** (bits - 1);
  return cut > half || (cut === half && (kept & 1) === 1) ? 1 : 0;
}

/** Widens one number. */
export function halfToFloat(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 0) return sign * 2 ** -14 * (fraction / 1024);
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN;
  return sign * 2 ** (exponent - 15) * (1 + fraction / 1024);
}

// Tables, because a model has hundreds of millions of numbers and a look-up is ten times as fast as the computation.
let floatsOfHalves: Float32Array | null = null;
let halvesOfBrains: Uint16Array | null = null;

/** Widens numbers. */
export function halvesToFloats(halves: Uint16Array): Float32Array {
  floatsOfHalves ??= Float32Array.from({ length: 2 ** 16 }, (_, bits) => halfToFloat(bits));
  const out = new Float32Array(halves.length);
  for (let i = 0; i < halves.length; i++) out[i] = floatsOfHalves[halves[i]];
  return out;
}

/** Half precision of bfloat16 numbers: exact from 2^-14 to 65504, and within 2^-25 below. */
export function brainsToHalves(brains: Uint16Array): Uint16Array {
  halvesOfBrains ??= Uint16Array.from({ length: 2 ** 16 }, (_, bits) => floatToHalf((bits << 16) >>> 0));
  const out = new Uint16Array(brains.length);
  for (let i = 0; i < brains.length; i++) out[i] = halvesOfBrains[brains[i]];
  return out;
}

/** Half precision of float32 numbers. */
export function floatsToHalves(floats: Float32Array): Uint16Array {
  const bits = new Uint32Array(floats.buffer, floats.byteOffset, floats.length);
  const out = new Uint16Array(bits.length);
  for (let i = 0; i < bits.length; i++) out[i] = floatToHalf(bits[i]);
  return out;
}

/** A float32 tensor stored in half precision. */
export class HalfTensor {
  /** @param halves the numbers' bits */
  constructor(
    readonly shape: readonly number[],
    readonly halves: Uint16Array,
  ) {}

  /** The widened numbers, computed at each read: for rare reads. Writes are lost. */
  get data(): Float32Array {
    return halvesToFloats(this.halves);
  }
}

/** The names of the tensors in half precision. */
export function halvesIn(tensors: ReadonlyMap<string, unknown>): ReadonlySet<string> {
  return new Set([...tensors].filter(([, tensor]) => tensor instanceof HalfTensor).map(([name]) => name));
}

/** The numbers of a tensor, to change in place. Raises InternalError for half precision, where writes would be lost. */
export function writable(name: string, tensor: { readonly data: Float32Array }): Float32Array {
  if (tensor instanceof HalfTensor) {
    throw new InternalError(`${name} is stored in float16 and cannot be changed in place`);
  }
  return tensor.data;
}

/**
 * Raises CheckpointError for a number that became infinite in half precision. `original` gives its value by index. Numbers that were not
 * finite before are checked elsewhere.
 */
export function requireHalves(
  name: string,
  halves: Uint16Array,
  original: (index: number) => number,
  where?: string,
): void {
  for (let i = 0; i < halves.length; i++) {
    if ((halves[i] & EXPONENT) !== EXPONENT) continue;
    const value = original(i);
    if (!Number.isFinite(value)) return;
    throw new CheckpointError(`tensor ${name} contains ${value}, beyond 65504, the limit of float16`, {
      ...(where === undefined ? {} : { where }),
      next: "Set policy.engine.dtype to 'float32'.",
    });
  }
}
