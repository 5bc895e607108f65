/** Log-probabilities of given actions of a flow policy and gradients of losses on them, micro-batch by micro-batch in a fixed order. */
import { InternalError, must } from '../../../core/errors.js';
import type { SessionOptions } from '../../../compute/onnx/session.js';
import type { TensorData } from '../../../compute/onnx/tensors.js';
import { slice, add, mul, reduceSum, reshape, sub } from '../../../compute/graph/build.js';
import type { Graph, Value } from '../../../compute/graph/ir.js';
import { shareOf, type Peers } from '../../../core/group/peers.js';
import type { Weights } from '../../../models/files.js';
import { recomputed } from '../../../compute/nets/layers.js';
import { velocityWidth } from '../../../compute/nets/flow/config.js';
import { flowInputs, velocity, type FlowShape } from '../../../compute/nets/flow/transformer.js';
import { Backward, trainingOutputs, targetFeeds } from '../backward.js';
import { ruleOf, type LossSpec } from '../losses/table.js';
import type { LearnReport, TrainGroup, Statistics, Target } from '../policy.js';
import { SessionCache } from '../../../compute/onnx/session_cache.js';
import type { FlowAction, FlowAnswer, FlowRequest, FlowCondition, FlowGroup, KeptImage } from './batch.js';
import { guidedValues, countedOf, concatArrays, microBatches, modelFeeds, partOf, takesGuidance } from './rows.js';
import { trainedPart, type FlowModel } from './load.js';
import type { FlowSampler } from './sampler.js';
import { weightedLoss } from '../../../compute/nets/losses.js';

export type FlowTrainGroup = TrainGroup<FlowRequest, FlowAnswer>;

export interface FlowLearnerOptions {
  /** Actions in one micro-batch. */
  readonly microBatch: number;
  /** Scale of the guidance under which answers were sampled. Null for none. */
  readonly guidance: number | null;
  /** Whether blocks keep their input alone, and are computed again in the backward pass. */
  readonly gradientCheckpointing: boolean;
  readonly session: SessionOptions;
  /** Processes that share the micro-batches. */
  readonly peers: Peers;
}

/** An action, its position, and its training target. */
interface ActionRow extends FlowAction {
  readonly condition: FlowCondition;
  readonly target: Target | null;
  /** Its index in its answer. */
  readonly at: number;
  /** The only rank that has its arrays. Null if every rank has them. */
  readonly home: number | null;
  /** [N, C] its mean under the frozen start. Null if not needed. */
  readonly reference: Float32Array | null;
  /** [N, C] its mean under the weights that sampled. Null if not needed. */
  readonly old: Float32Array | null;
}

/** The values computed for an action, which every rank receives. */
interface ActionStatistics {
  readonly logProb: number;
  readonly divergence?: number;
  readonly moved?: number;
}

/** A micro-batch, and the indices of its rows among all rows. */
interface DealtPart {
  readonly shape: FlowShape;
  readonly at: readonly number[];
  readonly part: readonly ActionRow[];
}

const NOT_HERE = new Float32Array(0);

export class FlowLearner {
  readonly #forward: SessionCache;
  readonly #backward: Backward;

  constructor(
    readonly model: FlowModel,
    /** Computes the unguided velocity for guidance, which carries no gradient. */
    private readonly sampler: FlowSampler,
    private readonly options: FlowLearnerOptions,
  ) {
    this.#forward = new SessionCache('log-probabilities', options.session);
    this.#backward = new Backward(model.weights, options.peers, options.session);
  }

  /**
   * Log-probabilities under `weights`, which may be another model's of the same architecture. With `withMeans` also the means, each only on the rank
   * that holds its answer.
   */
  async statistics(groups: readonly FlowGroup[], weights: Weights, withMeans: boolean): Promise<Statistics[][]> {
    const rows = rowsOf(groups.map((group) => ({ ...group, targets: null })));
    const { peers } = this.options;
    const own: ActionStatistics[][] = [];
    const computed = new Map<number, Float32Array>();
    const { rankOf, parts } = await this.#deal(rows);
    for (const { shape, at, part } of parts) {
      const result = await this.#forward.use(
        { shape, withMeans },
        (graph) => {
          const { logProbs, means } = this.#actions(graph, shape, false).actions;
          return { logProbs, ...(withMeans ? { means } : {}) };
        },
        async (session) => session.run(await this.#feeds(part, shape, weights), weights),
      );
      own.push(part.map((_, b) => actionStatistics(result, b)));
      if (withMeans) at.forEach((i, b) => computed.set(i, partOf(result.means as Float32Array, b, shape.batch)));
    }
    const reportedValues = (await peers.allGather(own)).flat();
    if (!withMeans) return this.#sorted(groups, rows, rows, reportedValues, null);
    const homeOf = (i: number): number => rows[i].home ?? rankOf(i);
    const mean = (i: number): Float32Array => must(computed.get(i), 'a mean that this rank computed');
    const arrived = await carried(peers, rows.length, { from: rankOf, to: homeOf }, mean);
    const here = (i: number): Float32Array => (homeOf(i) === peers.rank ? (arrived.get(i) ?? mean(i)) : NOT_HERE);
    return this.#sorted(groups, rows, rows, reportedValues, new Map(rows.map((row, i) => [row, here(i)])));
  }

  /**
   * Adds the gradient of the loss, summed over this rank's micro-batches in their order, to the gradients since the last call of `gradients`. An action with weight
   * zero and an old value is not computed: the report repeats the old value.
   */
  async learn(trainGroups: readonly FlowTrainGroup[], loss: LossSpec): Promise<LearnReport> {
    const all = rowsOf(trainGroups);
    const rows = all.filter((row) => !isLeftOut(row));
    const { loss: sum, reported: reportedValues } = await this.#backward.learn({
      parts: (await this.#deal(rows)).parts,
      key: ({ shape }) => ({ shape, loss }),
      build: (graph, { shape }) => this.lossGraph(graph, shape, loss),
      feeds: async ({ part, shape }) => ({
        ...(await this.#feeds(part, shape, this.model.weights)),
        ...lossFeeds(part, shape, loss),
      }),
      report: (result, { part }) => part.map((_, b) => actionStatistics(result, b)),
    });
    return { loss: sum, statistics: this.#sorted(trainGroups, all, rows, reportedValues, null), klClamped: 0 };
  }

  /** The gradients since the last call. See `Backward.gradients`. */
  gradients(): Promise<Map<string, Float32Array>> {
    return this.#backward.gradients();
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#forward.dispose(), this.#backward.dispose()]);
  }

  /** The training graph of one micro-batch: loss, statistics, and a gradient `d:<parameter>` for every trained parameter. */
  lossGraph(graph: Graph, shape: FlowShape, loss: LossSpec): Record<string, Value> {
    const { actions, sigma } = this.#actions(graph, shape, this.options.gradientCheckpointing);
    const { scalar, reportedValues: reportedValues } = flowObjective(actions, loss, sigma);
    const trains = trainedPart(this.model);
    return trainingOutputs(scalar, reportedValues, (name) => trains.has(name));
  }

  /** The actions of a micro-batch, from the model's inputs, and their noise levels [B]. */
  #actions(
    graph: Graph,
    shape: FlowShape,
    checkpointing: boolean,
  ): { readonly actions: FlowActions; readonly sigma: Value } {
    const { config, adapter } = this.model;
    const inputs = flowInputs(graph, config, shape);
    const found = velocity(graph, config, shape, inputs, adapter, checkpointing ? recomputed : undefined);
    const { guidance } = this.options;
    const v = this.#needsTwoPasses
      ? guidedValues(found, graph.input('unguided', found.shape), guidance ?? 1, config)
      : found;
    const x = slice(inputs.hidden, 2, 0, velocityWidth(config));
    return { actions: flowActions(x, v, shape.hasSecond === true), sigma: inputs.sigma };
  }

  /** Whether guidance needs the model's unconditional velocity. */
  get #needsTwoPasses(): boolean {
    return this.options.guidance !== null && !takesGuidance(this.model.config);
  }

  async #feeds(part: readonly ActionRow[], shape: FlowShape, weights: Weights): Promise<Record<string, TensorData>> {
    const { config } = this.model;
    const full = filled(part, shape.batch);
    const of = (key: 'ofX' | 'ofVelocity' | 'precision' | 'offset'): Float32Array =>
      Float32Array.from(full, ({ gaussian }) => gaussian[key]);
    const unguided = this.#needsTwoPasses ? await this.sampler.unguided(part, weights) : null;
    return {
      ...modelFeeds(part, config, shape, this.options.guidance),
      ...(unguided === null ? {} : { unguided: concatArrays(filled(unguided, shape.batch)) }),
      drawn: concatArrays(full.map(({ drawn }) => drawn)),
      ...(shape.hasSecond === true
        ? { counted: concatArrays(full.map(({ condition }) => countedOf(keptOf(condition)))) }
        : {}),
      of_x: of('ofX'),
      of_velocity: of('ofVelocity'),
      precision: of('precision'),
      offset: of('offset'),
    };
  }

  /**
   * This rank's micro-batches, with rows fetched from the ranks that hold them, and the rank that computes each row. All ranks cut the same
   * micro-batches.
   */
  async #deal(rows: readonly ActionRow[]): Promise<{ rankOf: RankOf; parts: DealtPart[] }> {
    const { peers, microBatch } = this.options;
    const all = microBatches(rows, this.model.config, microBatch);
    const ranks = new Array<number>(rows.length);
    for (let rank = 0; rank < peers.size; rank++) {
      const { start, end } = shareOf(all.length, { rank, size: peers.size });
      for (const { at } of all.slice(start, end)) for (const i of at) ranks[i] = rank;
    }
    const rankOf = (i: number): number => ranks[i];
    const homeOf = (i: number): number => rows[i].home ?? rankOf(i);
    const brought = await carried(peers, rows.length, { from: homeOf, to: rankOf }, (i) => {
      const { x, drawn, reference, old } = rows[i];
      return { x, drawn, reference, old };
    });
    const { start, end } = shareOf(all.length, peers);
    const whole = (i: number): ActionRow => ({ ...rows[i], ...brought.get(i) });
    return { rankOf, parts: all.slice(start, end).map(({ shape, at }) => ({ shape, at, part: at.map(whole) })) };
  }

  /** Sorts the results and the means of the micro-batches of `rows`, over all ranks, into the order of all actions. */
  #sorted(
    groups: readonly { readonly answers: readonly FlowAnswer[] }[],
    all: readonly ActionRow[],
    rows: readonly ActionRow[],
    parts: readonly (readonly ActionStatistics[])[],
    means: ReadonlyMap<ActionRow, Float32Array> | null,
  ): Statistics[][] {
    const found = new Map<ActionRow, ActionStatistics>();
    microBatches(rows, this.model.config, this.options.microBatch).forEach(({ at }, p) =>
      at.forEach((i, b) => found.set(rows[i], parts[p][b])),
    );
    // Answers that are left out entirely report the same fields as the others.
    const tells = (what: 'divergence' | 'moved'): boolean => [...found.values()].some((one) => one[what] !== undefined);
    const [measured, compared] = [tells('divergence'), tells('moved')];
    let next = 0;
    return groups.map(({ answers }) =>
      answers.map(({ actions }) => {
        const own = actions.map(() => all[next++]);
        const reportedValues = own.map((row) => found.get(row) ?? unmoved(row));
        return {
          logProbs: Float32Array.from(reportedValues, ({ logProb }) => logProb),
          ...(means === null ? {} : { means: own.map((row) => must(means.get(row), 'the mean of an action')) }),
          ...(measured ? { divergence: Float32Array.from(reportedValues, ({ divergence }) => divergence ?? 0) } : {}),
          ...(compared ? { moved: Float32Array.from(reportedValues, ({ moved }) => moved ?? 0) } : {}),
        };
      }),
    );
  }
}

/** Whether nothing is learned from an action whose old value is known. */
function isLeftOut({ target, at }: ActionRow): boolean {
  return target !== null && target.old !== null && target.weights[at] === 0;
}

/** Statistics of an action that is left out of training. */
function unmoved({ target, at }: ActionRow): ActionStatistics {
  return { logProb: must(target?.old, 'the old value of an action that is left out').logProbs[at] };
}

function keptOf({ kept }: FlowCondition): KeptImage {
  return must(kept, 'the kept image');
}

/** Every action in the order of groups, answers and steps. */
function rowsOf(
  groups: readonly {
    readonly prompt: FlowRequest;
    readonly answers: readonly FlowAnswer[];
    readonly targets: readonly Target[] | null;
  }[],
): ActionRow[] {
  return groups.flatMap(({ prompt, answers, targets }) =>
    answers.flatMap(({ actions, home = null }, g) => {
      const target = targets?.[g] ?? null;
      const of = { condition: prompt.flow, target, home };
      return actions.map((action, at) => ({
        ...action,
        ...of,
        at,
        reference: target?.reference?.means?.[at] ?? null,
        old: target?.old?.means?.[at] ?? null,
      }));
    }),
  );
}

function filled<T>(part: readonly T[], size: number): T[] {
  return Array.from({ length: size }, (_, b) => part[b] ?? part[0]);
}

/** The loss's inputs for each row. Rows that fill up a micro-batch have weight zero. */
function lossFeeds(part: readonly ActionRow[], { batch }: FlowShape, loss: LossSpec): Record<string, TensorData> {
  const placed = part.map(({ target, at }, row) => {
    if (target === null) throw new InternalError('an action without a target');
    return { target, from: at, count: 1, row };
  });
  const meansOf = (what: 'reference' | 'old'): Float32Array => {
    const means = part.map(({ [what]: mean, x }) => {
      if (mean?.length !== x.length) throw new InternalError(`${what} statistics without their means`);
      return mean;
    });
    return concatArrays(filled(means, batch));
  };
  const { reads, ofMeans = false } = ruleOf(loss);
  return {
    ...targetFeeds(['weights', ...reads], placed, batch),
    ...(loss.kl ? { reference: meansOf('reference') } : {}),
    ...(ofMeans ? { old_means: meansOf('old') } : {}),
  };
}

function actionStatistics(result: Readonly<Record<string, unknown>>, b: number): ActionStatistics {
  const divergence = result['divergence'] as Float32Array | undefined;
  const moved = result['moved'] as Float32Array | undefined;
  return {
    logProb: (result['logProbs'] as Float32Array)[b],
    ...(divergence === undefined ? {} : { divergence: divergence[b] }),
    ...(moved === undefined ? {} : { moved: moved[b] }),
  };
}

/** The rank that has a row or receives it. */
type RankOf = (row: number) => number;

/**
 * Moves values of `count` rows, which have the same numbers on all ranks. The rank `from(row)` computes `of(row)`, and the rank `to(row)` receives
 * it. Rows that stay on their rank are left out. All ranks must agree on `from` and `to`.
 */
async function carried<T>(
  peers: Peers,
  count: number,
  { from, to }: { readonly from: RankOf; readonly to: RankOf },
  of: (row: number) => T,
): Promise<Map<number, T>> {
  const moving = Array.from({ length: count }, (_, i) => i).filter((i) => from(i) !== to(i));
  const arrived = new Map<number, T>();
  if (moving.length === 0) return arrived;
  const between = (a: number, b: number): number[] => moving.filter((i) => from(i) === a && to(i) === b);
  const got = await peers.allToAll(Array.from({ length: peers.size }, (_, rank) => between(peers.rank, rank).map(of)));
  got.forEach((values, rank) => between(rank, peers.rank).forEach((i, at) => arrived.set(i, values[at])));
  return arrived;
}

/** The Gaussians of a micro-batch's actions. See `Gaussian`. */
export interface FlowActions {
  /** [B] averaged over the elements. */
  readonly logProbs: Value;
  /** [B, N, C] */
  readonly means: Value;
  readonly drawn: Value;
  /** [B] */
  readonly precision: Value;
  /** [B, N, C] the weight of each element, 1 on average. Null if all weigh the same. */
  readonly counted: Value | null;
}

/** Gaussians for the model's inputs `x` and its velocities `v`, both [B, N, C]. Declares the actions' inputs. `counts`: elements have weights. */
export function flowActions(x: Value, v: Value, counts: boolean): FlowActions {
  const { graph } = v;
  const [batch] = v.shape;
  const scalars = (name: string): Value => graph.input(name, [batch]);
  const wide = (value: Value): Value => reshape(value, [batch, 1, 1]);
  const means = add(mul(wide(scalars('of_x')), x), mul(wide(scalars('of_velocity')), v));
  const precision = scalars('precision');
  const counted = counts ? graph.input('counted', means.shape) : null;
  const drawn = graph.input('drawn', means.shape);
  const off = sub(drawn, means);
  const squares = mul(off, off);
  const offset = scalars('offset');
  const error = averageOf(squares, counted);
  return { logProbs: sub(offset, mul(precision, error)), means, drawn, precision, counted };
}

/** The scalar loss, and the values reported for each action. `sigma` [B] contains the actions' noise levels. Declares the loss's inputs. */
export function flowObjective(
  { logProbs, means, drawn, precision, counted }: FlowActions,
  loss: LossSpec,
  sigma: Value,
): { readonly scalar: Value; readonly reportedValues: Record<string, Value> } {
  const { graph } = logProbs;
  const input = (name: string): Value => graph.input(name, logProbs.shape);
  const { kl = null } = loss;
  const rule = ruleOf(loss);
  const average = (of: Value): Value => averageOf(of, counted);
  const from = (other: Value): Value => {
    const away = sub(means, other);
    return mul(precision, average(mul(away, away)));
  };
  const divergence = kl === null ? null : from(graph.input('reference', means.shape));
  const old = rule.ofMeans === true ? graph.input('old_means', means.shape) : null;
  const level = reshape(sigma, [sigma.size, 1, 1]);
  const gaussians = old === null ? undefined : { means, old, drawn, level, average, moved: from(old) };
  const scalar = weightedLoss(
    input('weights'),
    rule.gain(loss, logProbs, input, gaussians),
    kl === null || divergence === null ? null : mul(divergence, graph.scalar(kl.coefficient)),
  );
  return {
    scalar,
    reportedValues: {
      logProbs,
      ...(divergence === null ? {} : { divergence }),
      ...(gaussians && { moved: gaussians.moved }),
    },
  };
}

/** [B] means over all but the first axis, each element weighted by `counted`. */
function averageOf(x: Value, counted: Value | null): Value {
  const [batch] = x.shape;
  const weighted = counted === null ? x : mul(x, counted);
  return mul(reshape(reduceSum(weighted, [1, 2]), [batch]), x.graph.scalar(batch / x.size));
}
