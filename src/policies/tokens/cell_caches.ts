/** Caches in cells, which steps read and give anew: on a device that keeps tensors nothing of them goes through this process's memory. */
import { SessionCache } from '../../engines/onnx/session_cache.js';
import type { Fed, SessionOptions } from '../../engines/onnx/session.js';
import { TensorCell } from '../../engines/onnx/tensor_cell.js';
import { pad, reshape, where } from '../../graph/build.js';
import type { Graph, Value } from '../../graph/ir.js';
import type { LayerCache } from '../../nets/decoder/inputs.js';
import type { DecoderConfig } from '../../nets/decoder/config.js';
import type { AnswerCaches } from './decoding_batch.js';

/** What enlarges caches, layer by layer. */
export class CacheGrowth {
  readonly #sessions: SessionCache;

  constructor(session: SessionOptions) {
    this.#sessions = new SessionCache('larger caches', { ...session, leaves: () => true });
  }

  /** Adds columns of zeros, up to `to`, to the keys [batch, depth, from] and the values [batch, from, depth] of one layer. */
  async widen(
    { keys, values }: Readonly<Record<'keys' | 'values', TensorCell>>,
    sizes: Readonly<Record<'batch' | 'depth' | 'from' | 'to', number>>,
  ): Promise<void> {
    const { batch, depth, from, to } = sizes;
    const build = (graph: Graph): Record<'keys' | 'values', Value> => ({
      keys: pad(graph.input('keys', [batch, depth, from]), 2, 0, to - from),
      values: pad(graph.input('values', [batch, from, depth]), 1, 0, to - from),
    });
    const cells = { keys, values };
    await this.#sessions.use(sizes, build, (session) => session.run(cells, undefined, cells));
  }

  dispose(): Promise<void> {
    return this.#sessions.dispose();
  }
}

/** The caches of all layers with this step's keys [batch, 1, D] and values written into the column of `written`, bool [Ta], where it is true. */
export function writtenCaches(
  { graph }: Value,
  past: readonly LayerCache[],
  step: { readonly keys: readonly Value[]; readonly values: readonly Value[] },
): Record<string, Value> {
  const [batch, depth, columns] = past[0].keysTransposed.shape;
  const written = graph.input('written', [columns], 'bool');
  return Object.fromEntries(
    past.flatMap(({ keysTransposed, values }, i) => [
      [`answer_keys.${i}`, where(written, reshape(step.keys[i], [batch, depth, 1]), keysTransposed)],
      [`answer_values.${i}`, where(reshape(written, [columns, 1]), step.values[i], values)],
    ]),
  );
}

/** Keys are [rows, depth, columns], values [rows, columns, depth]; all begin with zeros. */
export class CellCaches implements AnswerCaches {
  readonly feeds: Record<string, Fed> = {};
  readonly outputs: Record<string, TensorCell> = {};
  readonly batch: number;
  #length = 0;

  constructor(
    rows: number,
    private readonly config: DecoderConfig,
    private readonly growth: CacheGrowth,
  ) {
    this.batch = rows * config.num_key_value_heads;
  }

  get length(): number {
    return this.#length;
  }

  async grow(length: number): Promise<void> {
    const { num_hidden_layers: layers, head_dim: depth } = this.config;
    const { batch } = this;
    const from = this.#length;
    // All that is there at first is read from one array.
    const zeros = from === 0 ? new Float32Array(batch * depth * length) : null;
    for (let layer = 0; layer < layers; layer++) {
      const [keys, values] = [`answer_keys.${layer}`, `answer_values.${layer}`];
      if (zeros === null) {
        const cells = { keys: this.outputs[keys], values: this.outputs[values] };
        await this.growth.widen(cells, { batch, depth, from, to: length });
      } else {
        for (const name of [keys, values]) this.feeds[name] = this.outputs[name] = new TensorCell(zeros);
      }
    }
    this.feeds['written'] = new Uint8Array(length);
    this.#length = length;
  }

  async step(column: number, run: () => Promise<void>): Promise<void> {
    (this.feeds['written'] as Uint8Array).fill(0).fill(1, column, column + 1);
    await run();
  }

  dispose(): void {
    for (const cell of Object.values(this.outputs)) cell.dispose();
  }
}
