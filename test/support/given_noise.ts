import { RandomStream } from '../../src/core/random.js';

/** Gives recorded numbers in place of normal ones, in their order. Fails if they run out. */
export class GivenNoise extends RandomStream {
  #at = 0;

  constructor(private readonly numbers: Float32Array) {
    super('given');
  }

  override uniform(): number {
    return 0;
  }

  override normals(out: Float32Array): Float32Array {
    const end = this.#at + out.length;
    if (end > this.numbers.length) throw new Error(`only ${this.numbers.length} numbers are given`);
    out.set(this.numbers.subarray(this.#at, end));
    this.#at = end;
    return out;
  }
}
