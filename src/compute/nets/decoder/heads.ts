/**
 * Converts between two orders of heads. Projections make rows [N, H * D], token after token. Attention needs one head after
 * another, so that the answers of a prompt are adjacent. The rows of a batch are those of its prompts [P, Tp] and then of
 * its answers [P, G, Ta], or only of tokens. Gathering single heads also selects a part of the rows and adds or removes
 * padding in the same pass. Slicing and transposing would take two passes.
 */
import { concat, gather, reshape, slice, withGradient } from '../../graph/build.js';
import type { Graph, Shape, Value } from '../../graph/ir.js';
import type { DecoderConfig } from './config.js';

export interface Heads {
  readonly keyValueHeads: number;
  readonly queriesPerHead: number;
  readonly depth: number;
}

export function headsOf(config: DecoderConfig): Heads {
  return {
    keyValueHeads: config.num_key_value_heads,
    queriesPerHead: config.num_attention_heads / config.num_key_value_heads,
    depth: config.head_dim,
  };
}

/** The heads of keys and values: one for all the queries that read it. */
export function keysOf(heads: Heads): Heads {
  return { ...heads, queriesPerHead: 1 };
}

/** The columns of one part's tokens in a batch whose padding has no rows. */
export interface TokenLayout {
  readonly rows: number;
  /** int64 [P * G * T]: the row of each column within the part. Padding has the index of a row without a token. */
  readonly rowOf: Value;
  /** int64 [rows]: the column of each row. A row without a token has the index of a padding column. */
  readonly columnOf: Value;
}

/**
 * The heads of one part of a batch: P prompts, G answers of each (1 for prompts themselves), T columns, K * R heads in
 * a row.
 */
export class HeadOrder {
  readonly #rows: number;
  readonly #columns: number;
  readonly #perRow: number;
  readonly #byHead: Value;
  readonly #byRow: Value;

  constructor(
    graph: Graph,
    part: { readonly prompts: number; readonly answers: number; readonly columns: number },
    private readonly heads: Heads,
    /** The first row of the part within the batch. */
    private readonly firstRow: number,
    /** Null: every column has a row. */
    places: TokenLayout | null = null,
  ) {
    const { prompts, answers, columns } = part;
    const { keyValueHeads, queriesPerHead } = heads;
    this.#columns = prompts * answers * columns;
    this.#rows = places?.rows ?? this.#columns;
    this.#perRow = keyValueHeads * queriesPerHead;
    const count = this.#columns * this.#perRow;
    // Without places, the columns of the part begin with its first row in the batch.
    const first = places === null ? firstRow * this.#perRow : 0;
    const byHead = new BigInt64Array(count);
    const byRow = new BigInt64Array(count);
    let at = 0;
    for (let p = 0; p < prompts; p++) {
      for (let k = 0; k < keyValueHeads; k++) {
        for (let g = 0; g < answers; g++) {
          for (let r = 0; r < queriesPerHead; r++) {
            for (let t = 0; t < columns; t++, at++) {
              const head = ((p * answers + g) * columns + t) * this.#perRow + k * queriesPerHead + r;
              byHead[at] = BigInt(first + head);
              byRow[head] = BigInt(at);
            }
          }
        }
      }
    }
    const [headOfPlace, placeOfHead] = [graph.constant(byHead, [count]), graph.constant(byRow, [count])];
    if (places === null) {
      this.#byHead = headOfPlace;
      this.#byRow = placeOfHead;
      return;
    }
    const [perRow, rows] = [this.#perRow, this.#rows];
    const headsOfRows = BigInt64Array.from({ length: rows * perRow }, (_, i) => BigInt(firstRow * perRow + i));
    const byColumn = gather(graph.constant(headsOfRows, [rows, perRow]), places.rowOf);
    this.#byHead = gather(reshape(byColumn, [count]), headOfPlace);
    const ofRows = gather(reshape(placeOfHead, [this.#columns, perRow]), places.columnOf);
    this.#byRow = reshape(ofRows, [rows * perRow]);
  }

  /**
   * Rows of the batch [N, K * R * D] as this part's heads in the order [P, K, G, R, T, D], reshaped to the given shape
   * of that size.
   */
  split(rows: Value, shape: Shape): Value {
    // The gradient flows only to this part, so that the gradients of a batch's parts are joined without padding.
    const part = slice(rows, 0, this.firstRow, this.firstRow + this.#rows);
    return withGradient(this.#ofBatch(rows, shape), {
      name: 'split_heads',
      inputs: [part],
      gradient: (d) => [this.#toRows(d)],
    });
  }

  /** Heads of several parts, in the order of `split`, as the rows of their batch. */
  static join(parts: readonly { readonly order: HeadOrder; readonly x: Value }[]): Value {
    const rows = concat(
      parts.map(({ order, x }) => order.#toRows(x)),
      0,
    );
    return withGradient(rows, {
      name: 'join_heads',
      inputs: parts.map(({ x }) => x),
      gradient: (d) => parts.map(({ order, x }) => order.#ofBatch(d, x.shape)),
    });
  }

  #ofBatch(rows: Value, shape: Shape): Value {
    const { depth } = this.heads;
    return reshape(gather(reshape(rows, [rows.shape[0] * this.#perRow, depth]), this.#byHead), shape);
  }

  #toRows(x: Value): Value {
    const { depth } = this.heads;
    const heads = gather(reshape(x, [this.#columns * this.#perRow, depth]), this.#byRow);
    return reshape(heads, [this.#rows, this.#perRow * depth]);
  }
}
