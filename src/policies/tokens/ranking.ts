/** Yields the most probable tokens of a vocabulary one after another. */
import type { Part, TokenRow } from './token_row.js';

/**
 * A heap over the ids that `mask` allows, or over all: `next` returns them by falling logit, ties by id, and -1 after the last. A part of the row
 * enters only when nothing in the heap exceeds all of it: a nucleus of a few tokens sorts a few hundred ids, not 150,000.
 */
export class Ranking {
  readonly #ids: number[] = [];
  /** Parts that have not entered, the most probable last. */
  readonly #parts: { readonly part: Part; readonly bound: number }[];
  readonly #logits: Float32Array;

  constructor(
    row: TokenRow,
    private readonly mask: Uint8Array | null,
  ) {
    this.#logits = row.logits;
    this.#parts = row.parts(mask).map((part) => ({ part, bound: row.bound(part, mask) }));
    this.#parts.sort((a, b) => a.bound - b.bound);
  }

  next(): number {
    for (let next = this.#parts.at(-1); next !== undefined; next = this.#parts.at(-1)) {
      if (this.#ids.length > 0 && next.bound < this.#logits[this.#ids[0]]) break;
      this.#parts.pop();
      for (let id = next.part.from; id < next.part.to; id++) {
        if (this.mask === null || this.mask[id] === 1) this.#push(id);
      }
    }
    const first = this.#ids[0];
    const last = this.#ids.pop();
    if (first === undefined || last === undefined) return -1;
    if (this.#ids.length > 0) {
      this.#ids[0] = last;
      this.#sink();
    }
    return first;
  }

  #push(id: number): void {
    const ids = this.#ids;
    let at = ids.push(id) - 1;
    for (let parent = (at - 1) >> 1; at > 0 && this.#before(ids[at], ids[parent]); parent = (at - 1) >> 1) {
      [ids[at], ids[parent]] = [ids[parent], ids[at]];
      at = parent;
    }
  }

  #sink(): void {
    const ids = this.#ids;
    for (let at = 0; ;) {
      let best = at;
      for (let child = 2 * at + 1; child <= 2 * at + 2 && child < ids.length; child++) {
        if (this.#before(ids[child], ids[best])) best = child;
      }
      if (best === at) return;
      [ids[at], ids[best]] = [ids[best], ids[at]];
      at = best;
    }
  }

  #before(a: number, b: number): boolean {
    return this.#logits[a] > this.#logits[b] || (this.#logits[a] === this.#logits[b] && a < b);
  }
}
