/** Gradients of micro-batches in this process, summed over micro-batches and then over ranks, in buffers that are reused from step to step. */
import { InternalError, must } from '../../core/errors.js';
import type { Session, SessionOptions, SessionPool } from '../../compute/onnx/session.js';
import type { TensorData } from '../../compute/onnx/tensors.js';
import { SessionCache } from '../../compute/onnx/session_cache.js';
import { gradients } from '../../compute/graph/differentiate.js';
import { type Graph, sizeOf, type Value } from '../../compute/graph/ir.js';
import type { Peers } from '../../core/group/peers.js';
import type { Weights } from '../../models/files.js';
import type { Target } from './policy.js';
import type { LossInput } from './losses/loss.js';

/** Prefix of a gradient's name in a training graph. The parameter's name follows. */
export const GRADIENT = 'd:';

/** The outputs of a training graph: the scalar loss, the outputs to report, and a gradient for every parameter that trains. */
export function trainingOutputs(
  loss: Value,
  told: Readonly<Record<string, Value>>,
  isTrained: (parameter: string) => boolean,
): Record<string, Value> {
  const trained = [...loss.graph.parameters].filter(([name]) => isTrained(name));
  const found = gradients(
    loss,
    trained.map(([, value]) => value),
  );
  return { loss, ...told, ...Object.fromEntries(trained.map(([name], i) => [`${GRADIENT}${name}`, found[i]])) };
}

/** How to compute one rank's micro-batches. */
export interface MicroBatches<Part, Result> {
  /** In the order in which they are learned. */
  readonly parts: readonly Part[];
  /** Micro-batches with equal keys share a compiled graph. */
  readonly key: (part: Part) => object;
  /** Builds the training graph; see `trainingOutputs`. */
  readonly build: (graph: Graph, part: Part) => Record<string, Value>;
  readonly feeds: (part: Part) => Promise<Record<string, TensorData>>;
  /** The part of a micro-batch's result that all ranks receive. */
  readonly tell: (result: Readonly<Record<string, TensorData>>, part: Part) => Result;
}

export class Backward {
  readonly #sessions: SessionCache;
  /** The gradients of the first micro-batch, to which the others are added; kept, so that a step allocates no memory of that size. */
  readonly #sums: Record<string, TensorData> = {};
  /** The gradients of a later micro-batch. */
  readonly #parts: Record<string, TensorData> = {};
  /** Whether the sums contain anything since they were last taken. */
  #begun = false;
  /** The names of the gradients in graph order: known on every rank, even one without a micro-batch. Empty after a step. */
  #names: readonly string[] = [];

  constructor(
    /** All parameters of the graph. */
    private readonly weights: Weights,
    private readonly peers: Peers,
    session: SessionOptions,
    pool?: SessionPool,
  ) {
    this.#sessions = new SessionCache('training', session, pool);
  }

  /** Adds the gradient of the loss over this rank's micro-batches. Returns the loss and what was told, each over all ranks in rank order. */
  async learn<Part, Result>({
    parts,
    key,
    build,
    feeds,
    tell,
  }: MicroBatches<Part, Result>): Promise<{
    readonly loss: number;
    readonly told: Result[];
  }> {
    const told: Result[] = [];
    const losses: number[] = [];
    for (const part of parts) {
      const fed = await feeds(part);
      const result = await this.#sessions.use(
        key(part),
        (graph) => build(graph, part),
        (session) => session.run(fed, this.weights, this.#buffers(session)),
      );
      losses.push((result['loss'] as Float32Array)[0]);
      told.push(tell(result, part));
      this.#add(result);
    }
    const ranks = await this.peers.allGather({ told, losses, names: Object.keys(this.#sums) });
    this.#names = ranks.map(({ names }) => names).find((names) => names.length > 0) ?? [];
    return {
      loss: ranks.flatMap((one) => one.losses).reduce((sum, one) => sum + one, 0),
      told: ranks.flatMap((one) => one.told),
    };
  }

  /**
   * The gradient by parameter since the last call: the ranks' sums, added in a fixed tree, equal on every rank. The next `learn` starts over and
   * overwrites these arrays.
   */
  async gradients(): Promise<Map<string, Float32Array>> {
    if (this.#names.length === 0) throw new InternalError('a step without a gradient');
    const total = this.#names.map((name): [string, Float32Array] => {
      const parameter = name.slice(GRADIENT.length);
      const size = must(this.weights.get(parameter), parameter).data.length;
      return [parameter, this.#begun ? (this.#sums[name] as Float32Array) : new Float32Array(size)];
    });
    this.#begun = false;
    this.#names = [];
    await this.peers.sum(total.map(([, gradient]) => gradient));
    return new Map(total);
  }

  dispose(): Promise<void> {
    return this.#sessions.dispose();
  }

  /** Buffers into which a run of the training graph writes a micro-batch's gradients. */
  #buffers(session: Session): Record<string, TensorData> {
    const into = this.#begun ? this.#parts : this.#sums;
    // An output that the runtime allocates itself stays in its own arena, which never shrinks.
    for (const [name, { shape }] of session.outputs) {
      if (name.startsWith(GRADIENT)) into[name] ??= new Float32Array(sizeOf(shape));
    }
    return into;
  }

  #add(result: Readonly<Record<string, TensorData>>): void {
    for (const [name, gradient] of Object.entries(result)) {
      if (!name.startsWith(GRADIENT) || !this.#begun) continue;
      const sum = this.#sums[name] as Float32Array;
      for (let i = 0; i < sum.length; i++) sum[i] += (gradient as Float32Array)[i];
    }
    this.#begun = true;
  }
}

/** An input with one number per row of a micro-batch. `reference` holds log-probabilities under the frozen start. */
export type TargetInput = 'weights' | 'reference' | LossInput;

/** Consecutive actions of one answer, which fill consecutive rows of a micro-batch. */
export interface PlacedActions {
  readonly target: Target;
  /** Index of the first action. */
  readonly from: number;
  readonly count: number;
  /** Index of the first row. */
  readonly row: number;
}

const valuesOf: Readonly<Record<TargetInput, (target: Target) => number | Float32Array | undefined>> = {
  weights: ({ weights }) => weights,
  advantages: ({ advantages }) => advantages,
  old: ({ old }) => old?.logProbs,
  reference: ({ reference }) => reference?.logProbs,
};

/**
 * The inputs with these names, [rows] each. Rows without an action are 0, including their weight. Raises InternalError when a target lacks an input.
 */
export function targetFeeds(
  names: readonly TargetInput[],
  placed: readonly PlacedActions[],
  rows: number,
): Partial<Record<TargetInput, Float32Array>> {
  const feeds: Partial<Record<TargetInput, Float32Array>> = {};
  for (const name of names) {
    const feed = new Float32Array(rows);
    for (const { target, from, count, row } of placed) {
      const values = valuesOf[name](target);
      if (values === undefined) throw new InternalError(`the loss reads ${name}, which a target lacks`);
      if (typeof values === 'number') feed.fill(values, row, row + count);
      else feed.set(values.subarray(from, from + count), row);
    }
    feeds[name] = feed;
  }
  return feeds;
}
