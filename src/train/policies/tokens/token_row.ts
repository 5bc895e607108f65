/**
 * A row of logits that is read in blocks of ids.
 * For large vocabularies, the graph computes each block's greatest logit and its share of the block's probability.
 * Drawing a token then reads one block instead of 150,000 ids.
 */
import { mul, reduceMax, reshape, slice, softmax } from '../../../compute/graph/build.js';
import type { Value } from '../../../compute/graph/ir.js';

/** Number of ids in a block. */
const BLOCK = 256;

/** A smaller vocabulary is a single block without a summary. */
const MIN_SUMMARIZED = 2048;

/** Number of blocks that the graph summarizes. The remaining ids are few. */
export function summedBlocks(vocabulary: number): number {
  return vocabulary < MIN_SUMMARIZED ? 0 : Math.floor(vocabulary / BLOCK);
}

/**
 * The greatest logit of each summarized block, and its share of the block under softmax(logits * inverseTemperature).
 * Takes logits [N, V], and both results are [N, blocks].
 */
export function summarizeBlocks(logits: Value, inverseTemperature: Value): { maxima: Value; shares: Value } {
  const [rows, vocabulary] = logits.shape as [number, number];
  const blocks = summedBlocks(vocabulary);
  const parts = reshape(slice(logits, 1, 0, blocks * BLOCK), [rows, blocks, BLOCK]);
  const largest = (x: Value): Value => reshape(reduceMax(x, [2]), [rows, blocks]);
  // The greatest share is never small, and a softmax sums each row in the same order at any position.
  return { maxima: largest(parts), shares: largest(softmax(mul(parts, inverseTemperature))) };
}

/** The graph's summary of one row at this temperature. */
export interface RowSummary {
  readonly temperature: number;
  readonly maxima: Float32Array;
  readonly shares: Float32Array;
}

/** The ids [from, to) of a row. */
export interface Part {
  readonly from: number;
  readonly to: number;
  /** Index of the summarized block. Null if the part is not a whole block. */
  readonly block: number | null;
  /** Whether a mask forbids some of the ids. */
  readonly masked: boolean;
}

/** A part's greatest allowed logit, and the sum of exp((logit - top) / temperature) over the allowed ids. */
export interface Mass {
  readonly top: number;
  readonly sum: number;
}

/** Number of ids that a mask allows in each block. Cached, because masks are few and shared. */
const allowances = new WeakMap<Uint8Array, Uint16Array>();

function allowanceOf(mask: Uint8Array): Uint16Array {
  const known = allowances.get(mask);
  if (known !== undefined) return known;
  const counts = new Uint16Array(Math.ceil(mask.length / BLOCK));
  mask.forEach((allowed, id) => (counts[Math.floor(id / BLOCK)] += allowed));
  allowances.set(mask, counts);
  return counts;
}

export class TokenRow {
  readonly #size: number;

  constructor(
    readonly logits: Float32Array,
    /** Null if the row is a single block. */
    private readonly summary: RowSummary | null = null,
  ) {
    this.#size = summary === null ? logits.length : BLOCK;
  }

  /** Its blocks within [from, to), except those in which `mask` (null: none) forbids all ids. */
  parts(mask: Uint8Array | null, from = 0, to = this.logits.length): Part[] {
    const size = this.#size;
    const counts = mask === null || this.summary === null ? null : allowanceOf(mask);
    const out: Part[] = [];
    for (let block = Math.floor(from / size); block * size < to; block++) {
      const [first, last] = [Math.max(from, block * size), Math.min(to, (block + 1) * size)];
      const allowed = counts === null ? null : counts[block];
      if (allowed === 0) continue;
      const summed = last - first === size && block < (this.summary?.maxima.length ?? 0);
      const masked = mask !== null && allowed !== last - first;
      out.push({ from: first, to: last, block: summed ? block : null, masked });
    }
    return out;
  }

  /** An upper bound of the part's allowed logits: the greatest of them, or of the whole block. */
  bound({ from, to, block }: Part, mask: Uint8Array | null): number {
    if (block !== null && this.summary !== null) return this.summary.maxima[block];
    let top = -Infinity;
    for (let id = from; id < to; id++) {
      if ((mask === null || mask[id] === 1) && this.logits[id] > top) top = this.logits[id];
    }
    return top;
  }

  top(part: Part, mask: Uint8Array | null): number {
    return this.bound(part.masked ? { ...part, block: null } : part, mask);
  }

  mass(part: Part, mask: Uint8Array | null, temperature: number): Mass {
    const { from, to, block, masked } = part;
    const top = this.top(part, mask);
    if (block !== null && !masked && this.summary?.temperature === temperature) {
      return { top, sum: 1 / this.summary.shares[block] };
    }
    let sum = 0;
    for (let id = from; id < to; id++) {
      if (mask === null || mask[id] === 1) sum += Math.exp((this.logits[id] - top) / temperature);
    }
    return { top, sum };
  }
}

/** Combines the masses of several parts. */
export function combineMasses(masses: readonly Mass[], temperature: number): Mass {
  let top = -Infinity;
  for (const mass of masses) top = Math.max(top, mass.top);
  let sum = 0;
  for (const mass of masses) sum += mass.sum * Math.exp((mass.top - top) / temperature);
  return { top, sum };
}
