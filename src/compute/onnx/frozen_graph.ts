/** A graph over frozen weights: compiled once, and run on inputs. */
import { EditrlError, EngineError } from '../../core/errors.js';
import { halvesIn } from '../../core/half.js';
import type { FloatTensor } from '../../core/safetensors.js';
import type { Graph, Value } from '../graph/ir.js';
import type { ModelFileOptions } from './model_file.js';
import { Session, type SessionOptions, SessionPool } from './session.js';

/** A graph with its outputs, and the frozen weights that it reads. */
export interface OpenedGraph<Output extends string = string> {
  readonly graph: Graph;
  readonly outputs: Readonly<Record<Output, Value>>;
  readonly weights: Map<string, FloatTensor>;
}

/** Options of sessions whose weights never change: on WebGPU the weights stay on the device. */
export function frozenOptions(options: SessionOptions, weights: ReadonlyMap<string, FloatTensor>): SessionOptions {
  return { ...options, frozen: new Set(weights.keys()), halves: halvesIn(weights) };
}

export class FrozenGraph<Output extends string> {
  private constructor(
    private readonly session: Session,
    private readonly weights: Map<string, FloatTensor>,
  ) {}

  /**
   * Takes ownership of the weights, and drops those that the session holds itself, except in half precision. Raises
   * EngineError if the provider cannot run the graph.
   */
  static async open<Output extends string>(
    { graph, outputs, weights }: OpenedGraph<Output>,
    options: ModelFileOptions,
  ): Promise<FrozenGraph<Output>> {
    const session = await Session.compile(graph, outputs, frozenOptions(options, weights), new SessionPool(weights));
    const read = session.parameters;
    for (const name of [...weights.keys()]) if (!read.has(name)) weights.delete(name);
    return new FrozenGraph(session, weights);
  }

  /** Raises EngineError if the provider fails. */
  async run(feeds: Readonly<Record<string, Float32Array | BigInt64Array>>): Promise<Record<Output, Float32Array>> {
    try {
      return (await this.session.run(feeds, this.weights)) as Record<Output, Float32Array>;
    } catch (cause) {
      if (cause instanceof EditrlError) throw cause;
      throw new EngineError(`the model cannot run: ${cause instanceof Error ? cause.message : String(cause)}`, {
        cause,
      });
    }
  }

  dispose(): Promise<void> {
    return this.session.dispose();
  }
}

/** A model that opens on first use. After a failure, the next call tries again. */
export class Lazy<T extends { dispose(): Promise<void> }> {
  #opened: Promise<T> | null = null;

  constructor(private readonly open: () => Promise<T>) {}

  /** Raises the errors of opening. */
  get(): Promise<T> {
    if (this.#opened === null) {
      this.#opened = this.open();
      this.#opened.catch(() => (this.#opened = null));
    }
    return this.#opened;
  }

  /** Frees the model, which the next call opens again. */
  async dispose(): Promise<void> {
    const opened = this.#opened;
    this.#opened = null;
    await (await opened)?.dispose();
  }
}
