/**
 * The two orders of heads of a stream with B samples of T tokens: rows [B * T, H * D], as projections make them, and heads [B, H, T, D], as
 * attention reads them. Heads are looked up one by one, in one pass that also cuts the stream out of a longer sequence.
 */
import { gather, reshape, slice, withGradient } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';

export interface HeadSizes {
  readonly batch: number;
  readonly heads: number;
  readonly depth: number;
}

export class StreamHeads {
  readonly #byHead: Value;
  /** By the place of the stream in a sequence. */
  readonly #byRow = new Map<string, Value>();

  constructor(
    private readonly graph: Graph,
    private readonly sizes: HeadSizes,
    private readonly tokens: number,
  ) {
    const { heads } = sizes;
    this.#byHead = this.#lookUp((b, t, h) => ({
      from: (b * tokens + t) * heads + h,
      to: (b * heads + h) * tokens + t,
    }));
  }

  /** Rows [B * T, H * D] to heads [B, H, T, D]. */
  split(rows: Value): Value {
    return withGradient(this.#toHeads(rows), {
      name: 'split_heads',
      inputs: [rows],
      gradient: (d) => [this.#toRows(d, 0)],
    });
  }

  /** The rows [B * T, H * D] of the stream whose first token is at `first`, from the heads [B, H, S, D] of a sequence. */
  join(sequence: Value, first: number): Value {
    // The gradient flows only to the stream's part, so that the gradients of a sequence's parts are joined without
    // padding.
    const part = slice(sequence, 2, first, first + this.tokens);
    return withGradient(this.#toRows(sequence, first), {
      name: 'join_heads',
      inputs: [part],
      gradient: (d) => [this.#toHeads(d)],
    });
  }

  #toHeads(rows: Value): Value {
    const { batch, heads, depth } = this.sizes;
    const found = gather(reshape(rows, [batch * this.tokens * heads, depth]), this.#byHead);
    return reshape(found, [batch, heads, this.tokens, depth]);
  }

  #toRows(sequence: Value, first: number): Value {
    const { batch, heads, depth } = this.sizes;
    const length = sequence.shape[2];
    const key = `${first} of ${length}`;
    const byRow =
      this.#byRow.get(key) ??
      this.#lookUp((b, t, h) => ({
        from: (b * heads + h) * length + first + t,
        to: (b * this.tokens + t) * heads + h,
      }));
    this.#byRow.set(key, byRow);
    const found = gather(reshape(sequence, [batch * heads * length, depth]), byRow);
    return reshape(found, [batch * this.tokens, heads * depth]);
  }

  /** The source of each head, in the order of the result: int64 [B * T * H]. */
  #lookUp(place: (b: number, t: number, h: number) => { readonly from: number; readonly to: number }): Value {
    const { batch, heads } = this.sizes;
    const data = new BigInt64Array(batch * this.tokens * heads);
    for (let b = 0; b < batch; b++) {
      for (let t = 0; t < this.tokens; t++) {
        for (let h = 0; h < heads; h++) {
          const { from, to } = place(b, t, h);
          data[to] = BigInt(from);
        }
      }
    }
    return this.graph.constant(data, [data.length]);
  }
}
