/**
 * Computes gradients of micro-batches in this process and sums them over micro-batches and then over ranks. Buffers are
 * reused between steps.
 */
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

/**
 * The outputs of a training graph: the scalar loss, the reported outputs, and a gradient for every trained parameter.
 */
export function trainingOutputs(
  loss: Value,
  reported: Readonly<Record<string, Value>>,
  isTrained: (parameter: string) => boolean,
): Record<string, Value> {
  const trained = [...loss.graph.parameters].filter(([name]) => isTrained(name));
  const found = gradients(
    loss,
    trained.map(([, value]) => value),
  );
  return { loss, ...reported, ...Object.fromEntries(trained.map(([name], i) => [`${GRADIENT}${name}`, found[i]])) };
}

/** The micro-batches of one rank, and how to compute them. */
export interface MicroBatches<Part, Result> {
  /** In the order in which they are computed. */
  readonly parts: readonly Part[];
  /** Micro-batches with equal keys share a compiled graph. */
  readonly key: (part: Part) => object;
  /** Builds the training graph. See `trainingOutputs`. */
  readonly build: (graph: Graph, part: Part) => Record<string, Value>;
  readonly feeds: (part: Part) => Promise<Record<string, TensorData>>;
  /** Selects the part of a micro-batch's result that all ranks receive. */
  readonly report: (result: Readonly<Record<string, TensorData>>, part: Part) => Result;
}

export class Backward {
  readonly #sessions: SessionCache;
  /** Sums of the micro-batches' gradients. Kept between steps, so that a step allocates no memory of that size. */
  readonly #sums: Record<string, TensorData> = {};
  /** The gradients of a later micro-batch. */
  readonly #parts: Record<string, TensorData> = {};
  /** Whether the sums contain anything since they were last taken. */
  #begun = false;
  /**
   * Names of the gradients in graph order, equal on every rank, even on a rank without a micro-batch. Empty after a
   * step.
   */
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

  /**
   * Adds the gradient of the loss over this rank's micro-batches. Returns the loss and the selected results over all
   * ranks, in rank order.
   */
  async learn<Part, Result>({
    parts,
    key,
    build,
    feeds,
    report: tell,
  }: MicroBatches<Part, Result>): Promise<{
    readonly loss: number;
    readonly reported: Result[];
  }> {
    const reported: Result[] = [];
    const losses: number[] = [];
    for (const part of parts) {
      const inputs = await feeds(part);
      const result = await this.#sessions.use(
        key(part),
        (graph) => build(graph, part),
        (session) => session.run(inputs, this.weights, this.#buffers(session)),
      );
      losses.push((result['loss'] as Float32Array)[0]);
      reported.push(tell(result, part));
      this.#add(result);
    }
    const ranks = await this.peers.allGather({ told: reported, losses, names: Object.keys(this.#sums) });
    this.#names = ranks.map(({ names }) => names).find((names) => names.length > 0) ?? [];
    return {
      loss: ranks.flatMap((one) => one.losses).reduce((sum, one) => sum + one, 0),
      reported: ranks.flatMap((one) => one.told),
    };
  }

  /**
   * The gradient by parameter since the last call, summed over ranks in a fixed tree and equal on every rank. The next
   * `learn` starts over and overwrites these arrays.
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

  /** Buffers for a micro-batch's gradients. */
  #buffers(session: Session): Record<string, TensorData> {
    const into = this.#begun ? this.#parts : this.#sums;
    // Outputs that the runtime allocates stay in its arena, which never shrinks.
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

/**
 * An input with one number per row of a micro-batch. `reference` contains log-probabilities under the starting weights.
 */
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
 * The inputs with these names, [rows] each. All values of rows without an action are 0, including the weight. Raises
 * InternalError when a target lacks an input.
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
