/**
 * Counter-based randomness: a stream is a pure function of its key, so there is no generator state to save, and any episode can be drawn
 * again by itself. The generator is xoshiro128** seeded by SplitMix32 over a 128-bit FNV-like mix of the key (Blackman and Vigna,
 * "Scrambled linear pseudorandom number generators", 2018).
 */

export type KeyWord = number | string;

function mix(state: number, word: number): number {
  let h = Math.imul(state ^ word, 0x9e3779b1);
  h ^= h >>> 15;
  h = Math.imul(h, 0x85ebca77);
  h ^= h >>> 13;
  h = Math.imul(h, 0xc2b2ae3d);
  return (h ^ (h >>> 16)) >>> 0;
}

/** Hashes a key to 32 bits. Numbers are hashed as 64-bit floats, so 1 and 1.5 differ. */
function hashKey(words: readonly KeyWord[], salt: number): number {
  let h = mix(0x2545f491, salt);
  const view = new DataView(new ArrayBuffer(8));
  for (const word of words) {
    if (typeof word === 'number') {
      view.setFloat64(0, word);
      h = mix(mix(h, view.getUint32(0)), view.getUint32(4));
    } else {
      h = mix(h, word.length + 0x10000);
      for (let i = 0; i < word.length; i++) h = mix(h, word.charCodeAt(i));
    }
  }
  return h;
}

/** A stream of random numbers. Streams with equal keys are equal. Others are independent for our purposes. */
export class RandomStream {
  #a: number;
  #b: number;
  #c: number;
  #d: number;

  constructor(...key: readonly KeyWord[]) {
    this.#a = hashKey(key, 1);
    this.#b = hashKey(key, 2);
    this.#c = hashKey(key, 3);
    this.#d = hashKey(key, 4) | 1;
  }

  /** The next 32 bits as an unsigned integer. */
  uint32(): number {
    const result = Math.imul(rotateLeft(Math.imul(this.#b, 5), 7), 9) >>> 0;
    const t = this.#b << 9;
    this.#c ^= this.#a;
    this.#d ^= this.#b;
    this.#b ^= this.#c;
    this.#a ^= this.#d;
    this.#c ^= t;
    this.#d = rotateLeft(this.#d, 11);
    return result;
  }

  /** Uniform in [0, 1), with 53 random bits. */
  uniform(): number {
    const high = this.uint32() >>> 5;
    const low = this.uint32() >>> 6;
    return (high * 67108864 + low) / 9007199254740992;
  }

  /** A uniform integer in [0, bound). */
  integer(bound: number): number {
    return Math.floor(this.uniform() * bound);
  }

  /** A standard normal number (Box and Muller, 1958). */
  normal(): number {
    const radius = Math.sqrt(-2 * Math.log(1 - this.uniform()));
    return radius * Math.cos(2 * Math.PI * this.uniform());
  }

  /**
   * Fills an array with standard normal numbers by the polar method (Marsaglia and Bray, 1964), in a third of the time of as many calls of
   * `normal`. The numbers differ from those.
   */
  normals(out: Float32Array): Float32Array {
    for (let i = 0; i < out.length; i += 2) {
      let [x, y, square] = [0, 0, 0];
      do {
        x = this.uint32() / 2 ** 31 - 1;
        y = this.uint32() / 2 ** 31 - 1;
        square = x * x + y * y;
      } while (square >= 1 || square === 0);
      const scale = Math.sqrt((-2 * Math.log(square)) / square);
      out[i] = scale * x;
      if (i + 1 < out.length) out[i + 1] = scale * y;
    }
    return out;
  }

  /** One element of a non-empty list. */
  pick<T>(items: readonly T[]): T {
    return items[this.integer(items.length)];
  }

  /** A shuffled copy (Fisher and Yates). */
  shuffled<T>(items: readonly T[]): T[] {
    const out = [...items];
    for (let i = out.length - 1; i > 0; i--) {
      const j = this.integer(i + 1);
      [out[i], out[j]] = [out[j], out[i]];
    }
    return out;
  }
}

function rotateLeft(x: number, k: number): number {
  return (x << k) | (x >>> (32 - k));
}
