/** Numbers of IEEE half precision (float16), and tensors that are held in it. */
import { CheckpointError, InternalError } from './errors.js';

/** The bits of an exponent: where all are set, a half is NaN or infinite. */
const EXPONENT = 0x7c00;

/** Half precision of a float's bits, rounded to the nearest, to even where two are as near; Infinity beyond 65504. */
export function floatToHalf(bits: number): number {
  const sign = (bits >>> 16) & 0x8000;
  const size = bits & 0x7fffffff;
  if (size > 0x7f800000) return sign | 0x7e00;
  // 65520 is as near to 65504 as to the next power of two.
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

/** 1 where what is cut off, of so many bits, is more than half of the last kept bit, or half of it and that bit is set. */
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

// A model has hundreds of millions of numbers, and looking one up takes a tenth of the time of computing it.
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

/** A float32 tensor whose numbers are held in half precision. */
export class HalfTensor {
  /** @param halves the numbers' bits */
  constructor(
    readonly shape: readonly number[],
    readonly halves: Uint16Array,
  ) {}

  /** The numbers, widened anew at each reading: for what is read rarely. What is written there is lost. */
  get data(): Float32Array {
    return halvesToFloats(this.halves);
  }
}

/** The names of those tensors that are held in half precision. */
export function halvesIn(tensors: ReadonlyMap<string, unknown>): ReadonlySet<string> {
  return new Set([...tensors].filter(([, tensor]) => tensor instanceof HalfTensor).map(([name]) => name));
}

/** The numbers of a tensor, to be changed in place. Raises InternalError for one in half precision, where what is written would be lost. */
export function writable(name: string, tensor: { readonly data: Float32Array }): Float32Array {
  if (tensor instanceof HalfTensor) {
    throw new InternalError(`${name} is held in float16, and cannot be changed in place`);
  }
  return tensor.data;
}

/**
 * Raises CheckpointError for a number that has become infinite in half precision, with `original` of its index. Numbers that were not finite before
 * are left to whoever looks at those.
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
    throw new CheckpointError(`tensor ${name} holds ${value}, and float16 ends at 65504`, {
      ...(where === undefined ? {} : { where }),
      next: "Set policy.engine.dtype to 'float32'.",
    });
  }
}
