/** The most probable tokens of a vocabulary, one after another. */

/**
 * A heap over the ids that `mask` allows, or over all: `next` takes them in falling order of their logits, equal ones by id, and gives -1 after the last.
 * Building it is linear in the vocabulary and a token costs its logarithm, so that a nucleus of a few tokens does not sort 150,000.
 */
export class Ranking {
  readonly #ids: Int32Array;
  #size = 0;

  constructor(
    private readonly logits: Float32Array,
    mask: Uint8Array | null,
  ) {
    this.#ids = new Int32Array(logits.length);
    for (let id = 0; id < logits.length; id++) if (mask === null || mask[id] === 1) this.#ids[this.#size++] = id;
    for (let at = (this.#size >> 1) - 1; at >= 0; at--) this.#sink(at);
  }

  next(): number {
    if (this.#size === 0) return -1;
    const first = this.#ids[0];
    this.#ids[0] = this.#ids[--this.#size];
    this.#sink(0);
    return first;
  }

  #sink(from: number): void {
    const ids = this.#ids;
    for (let at = from; ;) {
      let best = at;
      for (let child = 2 * at + 1; child <= 2 * at + 2 && child < this.#size; child++) {
        if (this.#before(ids[child], ids[best])) best = child;
      }
      if (best === at) return;
      [ids[at], ids[best]] = [ids[best], ids[at]];
      at = best;
    }
  }

  #before(a: number, b: number): boolean {
    return this.logits[a] > this.logits[b] || (this.logits[a] === this.logits[b] && a < b);
  }
}
