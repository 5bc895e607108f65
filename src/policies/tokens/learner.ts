/** Log-probabilities of given answers and gradients of losses on them, micro-batch by micro-batch in a fixed order. */
import { must } from '../../core/errors.js';
import type { SessionOptions, TensorData } from '../../engines/onnx/session.js';
import { checkpoint } from '../../graph/checkpoint.js';
import { gradients } from '../../graph/differentiate.js';
import type { Graph, Value } from '../../graph/ir.js';
import type { BatchShape } from '../../nets/decoder/decoder.js';
import { sequenceInputs, sequenceLogits } from '../../nets/decoder/decoder.js';
import { tokenDistribution, type TokenDistribution } from '../../nets/layers.js';
import { grpoLoss, negativeLogLikelihood, type KlEstimator } from '../../nets/losses.js';
import type { AnsweredPrompt } from './batch.js';
import { packSequences, promptColumns, roundUp } from './batch.js';
import type { Weights } from '../../models/files.js';
import type { PolicyModel } from './model.js';
import { SessionCache } from './model.js';
import { alone, shareOf, type Peers } from '../../group/peers.js';

export interface LearnerOptions {
  readonly temperature: number;
  readonly separateVocabularies: boolean;
  /** Answers in one micro-batch. */
  readonly microBatch: number;
  readonly gradientCheckpointing: boolean;
  readonly session: SessionOptions;
  /** Processes that share the micro-batches; default: this one alone. */
  readonly peers?: Peers;
}

/** What a loss wants per token; arrays run over an answer's tokens. */
export interface TokenTargets {
  readonly weights: Float32Array;
  readonly advantage: number;
  readonly reference: Float32Array | null;
  readonly oldLogProbs: Float32Array | null;
}

export type LossKind =
  | { readonly kind: 'sft' }
  | {
      readonly kind: 'grpo';
      readonly klCoeff: number;
      /** Default: k3. */
      readonly klEstimator?: KlEstimator;
      readonly clipRange: number | null;
      /** Whether the policy term is a ratio to old log-probabilities; a clip range needs one. */
      readonly ratio: boolean;
    };

/** Answers with what is to be learnt from them. */
export interface LearningGroup extends AnsweredPrompt {
  readonly targets: readonly TokenTargets[];
}

/** Per token of an answer. */
export interface TokenStatistics {
  readonly logProbs: Float32Array;
  readonly entropy: Float32Array;
}

export interface GradientResult {
  /** By parameter name, summed over micro-batches. */
  readonly gradients: Map<string, Float32Array>;
  readonly loss: number;
  /** For each group and answer. */
  readonly statistics: TokenStatistics[][];
}

/** What a graph gave for a whole micro-batch, padding included. */
interface RowStatistics {
  readonly logProbs: Float32Array;
  readonly entropy: Float32Array;
}

export class Learner {
  readonly #forward: SessionCache;
  readonly #backward: SessionCache;
  readonly #peers: Peers;
  /** The gradients of the first micro-batch, to which the others' are added; kept, so that no call takes memory of that size anew. */
  readonly #sums: Record<string, TensorData> = {};
  /** The gradients of a later micro-batch. */
  readonly #parts: Record<string, TensorData> = {};

  constructor(
    readonly model: PolicyModel,
    readonly options: LearnerOptions,
  ) {
    this.#forward = new SessionCache('log-probabilities', options.session);
    this.#backward = new SessionCache('training', options.session);
    this.#peers = options.peers ?? alone;
  }

  /** Log-probabilities and entropies under `weights`, which may be another model's of the same architecture. */
  async statistics(groups: readonly AnsweredPrompt[], weights: Weights): Promise<TokenStatistics[][]> {
    const { own, shape } = this.#deal(groups);
    const rows: RowStatistics[] = [];
    for (const part of own) {
      const build = (graph: Graph): Record<string, Value> => {
        const { logProbs, entropy } = this.#distribution(graph, shape);
        return { logProbs, entropy };
      };
      const feeds = { ...packSequences(part, shape) };
      rows.push(rowsOf(await this.#forward.use(shape, build, (session) => session.run(feeds, weights))));
    }
    return this.#sorted(groups, shape, (await this.#peers.allGather(rows)).flat());
  }

  /**
   * The gradient of the loss summed over all groups, the same on every rank. Each rank adds its micro-batches up in their order;
   * the ranks' sums are added in a fixed tree. The arrays hold it until the next call, which writes into them again.
   */
  async gradient(groups: readonly LearningGroup[], loss: LossKind): Promise<GradientResult> {
    const { own, shape } = this.#deal(groups);
    const total = new Map<string, Float32Array>();
    const rows: RowStatistics[] = [];
    const losses: number[] = [];
    for (const [index, part] of own.entries()) {
      const feeds = { ...packSequences(part, shape), ...tokenFeeds(part, shape, loss) };
      const into = index === 0 ? this.#sums : this.#parts;
      const result = await this.#backward.use(
        { shape, loss },
        (graph) => this.lossGraph(graph, shape, loss),
        (session) => session.run(feeds, this.model.weights, into),
      );
      losses.push((result.loss as Float32Array)[0]);
      rows.push(rowsOf(result));
      for (const [name, gradient] of Object.entries(result)) {
        if (!name.startsWith(GRADIENT)) continue;
        into[name] = gradient;
        const sum = this.#sums[name] as Float32Array;
        if (index === 0) total.set(name.slice(GRADIENT.length), sum);
        else for (let i = 0; i < sum.length; i++) sum[i] += (gradient as Float32Array)[i];
      }
    }
    const all = await this.#peers.allGather({ rows, losses, names: [...total.keys()] });
    // A rank without a micro-batch does not know which parameters have a gradient.
    const names = all.find((one) => one.names.length > 0)?.names ?? [];
    const gradients = new Map(names.map((name) => [name, total.get(name) ?? this.#zeros(name)]));
    await this.#peers.sum([...gradients.values()]);
    return {
      gradients,
      loss: all.flatMap((one) => one.losses).reduce((sum, one) => sum + one, 0),
      statistics: this.#sorted(
        groups,
        shape,
        all.flatMap((one) => one.rows),
      ),
    };
  }

  async dispose(): Promise<void> {
    await Promise.all([this.#forward.dispose(), this.#backward.dispose()]);
  }

  /** Cuts groups into micro-batches of `microBatch` answers: whole groups, or equal parts of a group, never a mixture. */
  #microBatches<T extends AnsweredPrompt>(
    groups: readonly T[],
  ): { readonly parts: (readonly T[])[]; readonly shape: BatchShape } {
    const perGroup = Math.max(...groups.map((group) => group.answers.length));
    const answersPerPrompt = largestDivisor(perGroup, this.options.microBatch);
    const prompts = Math.max(1, Math.floor(this.options.microBatch / answersPerPrompt));
    const columns = promptColumns(groups.map((group) => group.prompt));
    const answerColumns = roundUp(
      Math.max(...groups.flatMap((group) => group.answers.map((answer) => answer.ids.length))),
    );
    const shape: BatchShape = { prompts, answersPerPrompt, promptColumns: columns, answerColumns };
    const pieces = groups.flatMap((group) =>
      Array.from({ length: perGroup / answersPerPrompt }, (_, i) =>
        cut(group, i * answersPerPrompt, (i + 1) * answersPerPrompt),
      ),
    );
    const parts: (readonly T[])[] = [];
    for (let start = 0; start < pieces.length; start += prompts) parts.push(pieces.slice(start, start + prompts));
    return { parts, shape };
  }

  /** This rank's micro-batches. All ranks cut the same ones. */
  #deal<T extends AnsweredPrompt>(
    groups: readonly T[],
  ): { readonly own: (readonly T[])[]; readonly shape: BatchShape } {
    const { parts, shape } = this.#microBatches(groups);
    const { start, end } = shareOf(parts.length, this.#peers);
    return { own: parts.slice(start, end), shape };
  }

  #zeros(parameter: string): Float32Array {
    return new Float32Array(must(this.model.weights.get(parameter), parameter).data.length);
  }

  #distribution(graph: Graph, shape: BatchShape): TokenDistribution {
    const { config, space } = this.model;
    const wrap = this.options.gradientCheckpointing
      ? (name: string, x: Value, build: (x: Value) => Value): Value => checkpoint(name, [x], ([inner]) => build(inner))
      : undefined;
    const logits = sequenceLogits(config, shape, sequenceInputs(graph, shape), wrap);
    const targets = graph.input('targets', [logits.shape[0]], 'int64');
    const modality = this.options.separateVocabularies ? graph.constant(space.modality, [space.size]) : null;
    return tokenDistribution(logits, targets, this.options.temperature, modality);
  }

  /** The training graph of one micro-batch: loss, per-token statistics, and a gradient `d:<parameter>` for every parameter. */
  lossGraph(graph: Graph, shape: BatchShape, loss: LossKind): Record<string, Value> {
    const { logProbs, entropy } = this.#distribution(graph, shape);
    const rows = logProbs.size;
    const weights = graph.input('weights', [rows]);
    const scalar =
      loss.kind === 'sft'
        ? negativeLogLikelihood(logProbs, weights)
        : grpoLoss(
            {
              logProbs,
              weights,
              advantages: graph.input('advantages', [rows]),
              oldLogProbs: loss.ratio ? graph.input('old_log_probs', [rows]) : null,
              reference: loss.klCoeff > 0 ? graph.input('reference', [rows]) : null,
            },
            loss.klCoeff,
            loss.clipRange,
            loss.klEstimator,
          ).loss;
    const names = [...graph.parameters.keys()];
    const found = gradients(scalar, [...graph.parameters.values()]);
    return {
      loss: scalar,
      logProbs,
      entropy,
      ...Object.fromEntries(names.map((name, i) => [`${GRADIENT}${name}`, found[i]])),
    };
  }

  /** Sorts the rows of all micro-batches back to their answers. */
  #sorted(
    groups: readonly AnsweredPrompt[],
    { prompts, answersPerPrompt, answerColumns }: BatchShape,
    rows: readonly RowStatistics[],
  ): TokenStatistics[][] {
    const pieces = Math.max(...groups.map((group) => group.answers.length)) / answersPerPrompt;
    return groups.map(({ answers }, i) =>
      answers.map(({ ids }, g) => {
        const piece = i * pieces + Math.floor(g / answersPerPrompt);
        const found = must(rows[Math.floor(piece / prompts)], `the micro-batch of group ${i}`);
        const start = ((piece % prompts) * answersPerPrompt + (g % answersPerPrompt)) * answerColumns;
        return {
          logProbs: found.logProbs.slice(start, start + ids.length),
          entropy: found.entropy.slice(start, start + ids.length),
        };
      }),
    );
  }
}

const GRADIENT = 'd:';

/**
 * The reference of tokens that carry no weight, padding among them: below any log-probability, so that exp(log p_ref - log p) is 0 and cannot
 * overflow, for 0 times infinity is no number; its square is finite too.
 */
const UNWEIGHTED_REFERENCE = -1e15;

function rowsOf(result: Readonly<Record<string, unknown>>): RowStatistics {
  return { logProbs: result['logProbs'] as Float32Array, entropy: result['entropy'] as Float32Array };
}

function cut<T extends AnsweredPrompt>(group: T, start: number, end: number): T {
  const targets = (group as Partial<LearningGroup>).targets;
  return {
    ...group,
    answers: group.answers.slice(start, end),
    ...(targets === undefined ? {} : { targets: targets.slice(start, end) }),
  };
}

function largestDivisor(of: number, atMost: number): number {
  for (let n = Math.min(of, atMost); n > 1; n--) if (of % n === 0) return n;
  return 1;
}

function tokenFeeds(groups: readonly LearningGroup[], shape: BatchShape, loss: LossKind): Record<string, Float32Array> {
  const rows = shape.prompts * shape.answersPerPrompt * shape.answerColumns;
  const feeds = {
    weights: new Float32Array(rows),
    advantages: new Float32Array(rows),
    reference: new Float32Array(rows).fill(UNWEIGHTED_REFERENCE),
    old_log_probs: new Float32Array(rows),
  };
  groups.forEach(({ answers, targets }, p) => {
    answers.forEach(({ ids }, g) => {
      const target = targets[g];
      const start = (p * shape.answersPerPrompt + g) * shape.answerColumns;
      feeds.weights.set(target.weights, start);
      feeds.advantages.fill(target.advantage, start, start + ids.length);
      target.reference?.forEach((logProb, t) => {
        if (target.weights[t] !== 0) feeds.reference[start + t] = logProb;
      });
      if (target.oldLogProbs !== null) feeds.old_log_probs.set(target.oldLogProbs, start);
    });
  });
  return loss.kind === 'sft' ? { weights: feeds.weights } : feeds;
}
