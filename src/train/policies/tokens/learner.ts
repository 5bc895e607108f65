/** Computes log-probabilities of given answers and gradients of losses, micro-batch by micro-batch in a fixed order. */
import { must } from '../../../core/errors.js';
import { poolFor, type SessionOptions } from '../../../compute/onnx/session.js';
import type { TensorData } from '../../../compute/onnx/tensors.js';
import type { Graph, Value } from '../../../compute/graph/ir.js';
import { type Peers, shareOf } from '../../../core/group/peers.js';
import type { Weights } from '../../../models/files.js';
import { type BatchShape, sequenceInputs } from '../../../compute/nets/decoder/inputs.js';
import { recomputed } from '../../../compute/nets/layers.js';
import { sequenceHead } from '../../../compute/nets/decoder/decoder.js';
import { KL_EXPONENT_LIMIT, klTerm, weightedLoss } from '../../../compute/nets/losses.js';
import { tokenDistribution, type TokenDistribution } from '../../../compute/nets/token_distribution.js';
import type { LearnReport, Statistics, Target } from '../policy.js';
import {
  packSequences,
  roundUp,
  rowsFor,
  sequenceTables,
  type SequenceTables,
  type TokenGroup,
  withoutPadding,
} from './batch.js';
import { openVisionTower, type VisionTower } from './vision_tower.js';
import { isTrained, type PolicyModel } from '../../../models/adapters/policy_model.js';
import { Backward, targetFeeds, type TargetInput, trainingOutputs } from '../backward.js';
import { type LossSpec, ruleOf } from '../losses/table.js';
import { SessionCache } from '../../../compute/onnx/session_cache.js';

export interface LearnerOptions {
  readonly temperature: number;
  /** Whether a token's distribution covers only its own part of the vocabulary. */
  readonly separateVocabularies: boolean;
  /** Number of answers in a micro-batch. */
  readonly microBatch: number;
  readonly gradientCheckpointing: boolean;
  readonly session: SessionOptions;
  /** Processes that share the micro-batches. */
  readonly peers: Peers;
  /** The vision encoder of a vision-language model, if shared with others. Default: a new one. */
  readonly visionTower?: VisionTower | null;
}

/** Answers with their targets. */
export interface TokenTrainGroup extends TokenGroup {
  readonly targets: readonly Target[];
}

/** Statistics per token, for an answer or for a whole micro-batch including padding. */
export interface TokenStatistics {
  readonly logProbs: Float32Array;
  readonly entropy: Float32Array;
}

interface MicroBatch<T> {
  readonly part: readonly T[];
  readonly tables: SequenceTables;
}

/**
 * Padding changes the last bits of log-probabilities. The layout of micro-batches therefore depends on `among`, which
 * includes the given groups. With the same `among`, a token has the same bits whatever is computed together with it.
 */
export class Learner {
  readonly #forward: SessionCache;
  readonly #backward: Backward;
  readonly #visionTower: VisionTower | null;

  constructor(
    readonly model: PolicyModel,
    readonly options: LearnerOptions,
  ) {
    const { session } = options;
    this.#forward = new SessionCache('log-probabilities', session, poolFor(session));
    this.#backward = new Backward(model.weights, options.peers, session, poolFor(session));
    this.#visionTower =
      options.visionTower === undefined ? openVisionTower(model, options.session) : options.visionTower;
  }

  /** Log-probabilities and entropies under `weights`, which may belong to another model of the same architecture. */
  async statistics(
    groups: readonly TokenGroup[],
    weights: Weights,
    among: readonly TokenGroup[] = groups,
  ): Promise<TokenStatistics[][]> {
    const shape = this.shapeOf(among);
    const own = this.#deal(groups, shape);
    const rows: TokenStatistics[] = [];
    for (const { part, tables } of own) {
      const build = (graph: Graph): Record<string, Value> => {
        const { logProbs, entropy } = this.#distribution(graph, shape, false);
        return { logProbs, entropy };
      };
      const feeds = await this.#feeds(part, shape, tables);
      rows.push(statisticsOf(await this.#forward.use(shape, build, (session) => session.run(feeds, weights)), tables));
    }
    return sorted(groups, shape, (await this.options.peers.allGather(rows)).flat());
  }

  /**
   * Adds the gradient of the loss over this rank's micro-batches, in order, to the gradient since the last call of
   * `gradients`.
   */
  async learn(
    trainGroups: readonly TokenTrainGroup[],
    loss: LossSpec,
    among: readonly TokenGroup[] = trainGroups,
  ): Promise<LearnReport> {
    const shape = this.shapeOf(among);
    const { loss: sum, reported } = await this.#backward.learn({
      parts: this.#deal(trainGroups, shape),
      key: () => ({ shape, loss }),
      build: (graph) => this.lossGraph(graph, shape, loss),
      feeds: async ({ part, tables }) => ({
        ...(await this.#feeds(part, shape, tables)),
        ...lossFeeds(part, shape, tables, loss),
      }),
      report: (result, { tables }) => statisticsOf(result, tables),
    });
    const statistics = sorted(trainGroups, shape, reported);
    return {
      loss: sum,
      statistics,
      klClamped: loss.kl ? clampedExponents(trainGroups, statistics) : 0,
    };
  }

  /** The gradient since the last call. See `Backward.gradients`. */
  gradients(): Promise<Map<string, Float32Array>> {
    return this.#backward.gradients();
  }

  async dispose(): Promise<void> {
    await Promise.all([
      this.#forward.dispose(),
      this.#backward.dispose(),
      this.options.visionTower === undefined ? this.#visionTower?.dispose() : null,
    ]);
  }

  async #feeds(
    groups: readonly TokenGroup[],
    shape: BatchShape,
    tables: SequenceTables,
  ): Promise<Record<string, TensorData>> {
    const packed = withoutPadding(packSequences(groups, shape), tables);
    const prompts = groups.map(({ prompt }) => prompt.tokens);
    return { ...packed, ...(await this.#visionTower?.feeds(prompts, shape, tables.prompts.rowOf)) };
  }

  /**
   * The shape of a micro-batch of `microBatch` answers. It contains either whole groups or an equal part of one group.
   */
  shapeOf(among: readonly TokenGroup[]): BatchShape {
    const answersPerPrompt = largestDivisor(
      Math.max(...among.map(({ answers }) => answers.length)),
      this.options.microBatch,
    );
    const prompts = among.map(({ prompt }) => prompt.tokens);
    const together = Math.max(1, Math.floor(this.options.microBatch / answersPerPrompt));
    const longest = Math.max(...among.flatMap(({ answers }) => answers.map(({ ids }) => ids.length)));
    const images = this.#visionTower === null ? {} : { images: this.#visionTower.shape(prompts) };
    return {
      prompts: together,
      answersPerPrompt,
      ...images,
      // With one column of padding for every sequence.
      promptColumns: roundUp(Math.max(...prompts.map(({ ids }) => ids.length))),
      answerColumns: roundUp(longest + 1),
      tokenRows: rowsFor(cutUp(among, answersPerPrompt), together),
    };
  }

  /** This rank's micro-batches with their row tables. All ranks compute the same division. */
  #deal<T extends TokenGroup>(groups: readonly T[], shape: BatchShape): MicroBatch<T>[] {
    const { prompts, answersPerPrompt } = shape;
    const pieces = cutUp(groups, answersPerPrompt);
    const parts = starts(pieces.length, prompts).map((at) => pieces.slice(at, at + prompts));
    const { start, end } = shareOf(parts.length, this.options.peers);
    return parts.slice(start, end).map((part) => ({ part, tables: sequenceTables(part, shape) }));
  }

  #distribution(graph: Graph, shape: BatchShape, learning: boolean): TokenDistribution {
    const { config, format } = this.model;
    const wrap = this.options.gradientCheckpointing ? recomputed : undefined;
    const logits = sequenceHead(config, shape, sequenceInputs(graph, shape), wrap);
    const targets = graph.input('targets', [logits[0].rows.shape[0]], 'int64');
    const { temperature, separateVocabularies } = this.options;
    const secondPart = separateVocabularies ? format.secondPart : null;
    return tokenDistribution(logits, targets, { temperature, secondPart, learning });
  }

  /**
   * The training graph of a micro-batch: loss, per-token statistics, and a gradient `d:<parameter>` for every trained
   * parameter.
   */
  lossGraph(graph: Graph, shape: BatchShape, loss: LossSpec): Record<string, Value> {
    const { logProbs, entropy } = this.#distribution(graph, shape, true);
    const input = (name: TargetInput): Value => graph.input(name, [logProbs.size]);
    const { kl = null } = loss;
    const scalar = weightedLoss(
      input('weights'),
      ruleOf(loss).gain(loss, logProbs, input),
      kl === null ? null : klTerm(logProbs, input('reference'), kl),
    );
    return trainingOutputs(scalar, { logProbs, entropy }, (name) => isTrained(this.model, name));
  }
}

/** Assigns the rows of all micro-batches to their answers. */
function sorted(
  groups: readonly TokenGroup[],
  { prompts, answersPerPrompt, answerColumns }: BatchShape,
  rows: readonly TokenStatistics[],
): TokenStatistics[][] {
  let first = 0;
  return groups.map(({ answers }, i) => {
    const before = first;
    first += Math.ceil(answers.length / answersPerPrompt);
    return answers.map(({ ids }, g) => {
      const piece = before + Math.floor(g / answersPerPrompt);
      const found = must(rows[Math.floor(piece / prompts)], `the micro-batch of group ${i}`);
      const start = ((piece % prompts) * answersPerPrompt + (g % answersPerPrompt)) * answerColumns;
      return {
        logProbs: found.logProbs.slice(start, start + ids.length),
        entropy: found.entropy.slice(start, start + ids.length),
      };
    });
  });
}

/** Number of weighted tokens whose k3 exponent exceeds its limit. */
function clampedExponents(
  trainGroups: readonly TokenTrainGroup[],
  statistics: readonly (readonly Statistics[])[],
): number {
  let count = 0;
  trainGroups.forEach(({ targets }, i) =>
    targets.forEach(({ weights, reference }, g) => {
      const { logProbs } = statistics[i][g];
      weights.forEach((w, t) => {
        if (w !== 0 && reference !== null && reference.logProbs[t] - logProbs[t] > KL_EXPONENT_LIMIT) count += 1;
      });
    }),
  );
  return count;
}

/** A micro-batch's statistics by column. */
function statisticsOf(result: Readonly<Record<string, unknown>>, { answers }: SequenceTables): TokenStatistics {
  const by = (name: string): Float32Array => answers.ofColumns(result[name] as Float32Array);
  return { logProbs: by('logProbs'), entropy: by('entropy') };
}

/** Splits groups into parts of `answersPerPrompt` answers. */
function cutUp<T extends TokenGroup>(groups: readonly T[], answersPerPrompt: number): T[] {
  return groups.flatMap((group) =>
    starts(group.answers.length, answersPerPrompt).map((at) => cut(group, at, at + answersPerPrompt)),
  );
}

function cut<T extends TokenGroup>(group: T, start: number, end: number): T {
  const targets = (group as Partial<TokenTrainGroup>).targets;
  return {
    ...group,
    answers: group.answers.slice(start, end),
    ...(targets === undefined ? {} : { targets: targets.slice(start, end) }),
  };
}

/** The start of each part of `size` within `length`. */
function starts(length: number, size: number): number[] {
  return Array.from({ length: Math.ceil(length / size) }, (_, i) => i * size);
}

function largestDivisor(of: number, atMost: number): number {
  for (let n = Math.min(of, atMost); n > 1; n--) if (of % n === 0) return n;
  return 1;
}

/** The loss's inputs for each token of a micro-batch. */
function lossFeeds(
  trainGroups: readonly TokenTrainGroup[],
  { prompts, answersPerPrompt, answerColumns }: BatchShape,
  tables: SequenceTables,
  loss: LossSpec,
): Partial<Record<TargetInput, Float32Array>> {
  const placed = trainGroups.flatMap(({ answers, targets }, p) =>
    answers.map(({ ids }, g) => ({
      target: targets[g],
      from: 0,
      count: ids.length,
      row: (p * answersPerPrompt + g) * answerColumns,
    })),
  );
  const read: readonly TargetInput[] = ['weights', ...ruleOf(loss).reads, ...(loss.kl ? ['reference' as const] : [])];
  const feeds = targetFeeds(read, placed, prompts * answersPerPrompt * answerColumns);
  return Object.fromEntries(Object.entries(feeds).map(([name, feed]) => [name, tables.answers.ofRows(feed)]));
}
