/** Log-probabilities of given answers and gradients of losses on them, micro-batch by micro-batch in a fixed order. */
import { must } from '../../core/errors.js';
import type { SessionOptions, TensorData } from '../../engines/onnx/session.js';
import { checkpoint } from '../../graph/checkpoint.js';
import { gradients } from '../../graph/differentiate.js';
import type { Graph, Value } from '../../graph/ir.js';
import { shareOf, type Peers } from '../../group/peers.js';
import type { Weights } from '../../models/files.js';
import type { BatchShape } from '../../nets/decoder/decoder.js';
import { sequenceHead, sequenceInputs } from '../../nets/decoder/decoder.js';
import { KL_EXPONENT_LIMIT, klTerm, weightedLoss } from '../../nets/losses.js';
import { tokenDistribution, type TokenDistribution } from '../../nets/token_distribution.js';
import type { LearnReport, LossSpec, Statistics, Target } from '../policy.js';
import { packSequences, promptColumns, roundUp, type TokenGroup } from './batch.js';
import { eyesOf, type Eyes } from './eyes.js';
import { isTrained, type PolicyModel } from './model.js';
import { gainOf } from '../gain.js';
import { GRADIENT, GradientSums } from '../gradient_sums.js';
import { poolFor } from '../../engines/onnx/pool.js';
import { SessionCache } from '../../engines/onnx/session_cache.js';

export interface LearnerOptions {
  readonly temperature: number;
  /** Whether a token's distribution is over its own part of the vocabulary alone. */
  readonly separateVocabularies: boolean;
  /** Answers in one micro-batch. */
  readonly microBatch: number;
  readonly gradientCheckpointing: boolean;
  readonly session: SessionOptions;
  /** Processes that share the micro-batches. */
  readonly peers: Peers;
  /** Of a model that sees, where others use them, too; default: eyes of its own. */
  readonly eyes?: Eyes | null;
}

/** Answers with what is to be learnt from them. */
export interface TokenLesson extends TokenGroup {
  readonly targets: readonly Target[];
}

/** Per token of an answer, or of a whole micro-batch, padding included. */
export interface TokenStatistics {
  readonly logProbs: Float32Array;
  readonly entropy: Float32Array;
}

/**
 * Padding changes the last bits of log-probabilities. The layout of micro-batches therefore follows from `among`, of which the groups that
 * are given are some: with the same `among` a token has the same bits whatever it is computed together with.
 */
export class Learner {
  readonly #forward: SessionCache;
  readonly #backward: SessionCache;
  readonly #gradients = new GradientSums();
  readonly #eyes: Eyes | null;

  constructor(
    readonly model: PolicyModel,
    readonly options: LearnerOptions,
  ) {
    const { session } = options;
    this.#forward = new SessionCache('log-probabilities', session, poolFor(session));
    this.#backward = new SessionCache('training', session, poolFor(session));
    this.#eyes = options.eyes === undefined ? eyesOf(model, options.session) : options.eyes;
  }

  /** Log-probabilities and entropies under `weights`, which may be another model's of the same architecture. */
  async statistics(
    groups: readonly TokenGroup[],
    weights: Weights,
    among: readonly TokenGroup[] = groups,
  ): Promise<TokenStatistics[][]> {
    const shape = this.#shape(among);
    const own = this.#deal(groups, shape);
    const rows: TokenStatistics[] = [];
    for (const part of own) {
      const build = (graph: Graph): Record<string, Value> => {
        const { logProbs, entropy } = this.#distribution(graph, shape, false);
        return { logProbs, entropy };
      };
      const feeds = await this.#feeds(part, shape);
      rows.push(rowsOf(await this.#forward.use(shape, build, (session) => session.run(feeds, weights))));
    }
    return sorted(groups, shape, (await this.options.peers.allGather(rows)).flat());
  }

  /** Adds the gradient of the loss, summed over this rank's micro-batches in their order, to what was learnt since `gradients`. */
  async learn(
    lessons: readonly TokenLesson[],
    loss: LossSpec,
    among: readonly TokenGroup[] = lessons,
  ): Promise<LearnReport> {
    const shape = this.#shape(among);
    const own = this.#deal(lessons, shape);
    const rows: TokenStatistics[] = [];
    const losses: number[] = [];
    for (const part of own) {
      const feeds = { ...(await this.#feeds(part, shape)), ...targetFeeds(part, shape) };
      const result = await this.#backward.use(
        { shape, loss },
        (graph) => this.lossGraph(graph, shape, loss),
        (session) => session.run(feeds, this.model.weights, this.#gradients.buffers(session)),
      );
      losses.push((result.loss as Float32Array)[0]);
      rows.push(rowsOf(result));
      this.#gradients.add(result);
    }
    const all = await this.options.peers.allGather({ rows, losses, names: this.#gradients.names });
    this.#gradients.agree(all.map(({ names }) => names));
    const statistics = sorted(
      lessons,
      shape,
      all.flatMap((one) => one.rows),
    );
    return {
      loss: all.flatMap((one) => one.losses).reduce((sum, one) => sum + one, 0),
      statistics,
      klClamped:
        loss.policy !== 'likelihood' && loss.kl?.estimator === 'k3' ? clampedExponents(lessons, statistics) : 0,
    };
  }

  /** What was learnt, as `GradientSums.take` gives it. */
  gradients(): Promise<Map<string, Float32Array>> {
    return this.#gradients.take(this.model.weights, this.options.peers);
  }

  async dispose(): Promise<void> {
    await Promise.all([
      this.#forward.dispose(),
      this.#backward.dispose(),
      this.options.eyes === undefined ? this.#eyes?.dispose() : null,
    ]);
  }

  async #feeds(groups: readonly TokenGroup[], shape: BatchShape): Promise<Record<string, TensorData>> {
    const packed = { ...packSequences(groups, shape) };
    if (this.#eyes === null) return packed;
    const prompts = groups.map(({ prompt }) => prompt.tokens);
    return { ...packed, ...(await this.#eyes.feeds(prompts, shape)) };
  }

  /** The shape of a micro-batch of `microBatch` answers: whole groups, or equal parts of a group, never a mixture. */
  #shape(among: readonly TokenGroup[]): BatchShape {
    const answersPerPrompt = largestDivisor(
      Math.max(...among.map(({ answers }) => answers.length)),
      this.options.microBatch,
    );
    const prompts = among.map(({ prompt }) => prompt.tokens);
    return {
      prompts: Math.max(1, Math.floor(this.options.microBatch / answersPerPrompt)),
      answersPerPrompt,
      promptColumns: promptColumns(prompts),
      answerColumns: roundUp(Math.max(...among.flatMap(({ answers }) => answers.map(({ ids }) => ids.length)))),
      ...(this.#eyes === null ? {} : { pictures: this.#eyes.shape(prompts) }),
    };
  }

  /** This rank's micro-batches. All ranks cut the same ones. */
  #deal<T extends TokenGroup>(groups: readonly T[], { prompts, answersPerPrompt }: BatchShape): (readonly T[])[] {
    const pieces = groups.flatMap((group) =>
      starts(group.answers.length, answersPerPrompt).map((at) => cut(group, at, at + answersPerPrompt)),
    );
    const parts = starts(pieces.length, prompts).map((at) => pieces.slice(at, at + prompts));
    const { start, end } = shareOf(parts.length, this.options.peers);
    return parts.slice(start, end);
  }

  #distribution(graph: Graph, shape: BatchShape, learning: boolean): TokenDistribution {
    const { config, format } = this.model;
    const wrap = this.options.gradientCheckpointing
      ? (name: string, x: Value, build: (x: Value) => Value): Value => checkpoint(name, [x], ([inner]) => build(inner))
      : undefined;
    const logits = sequenceHead(config, shape, sequenceInputs(graph, shape), wrap);
    const targets = graph.input('targets', [logits[0].rows.shape[0]], 'int64');
    const { temperature, separateVocabularies } = this.options;
    const secondPart = separateVocabularies ? format.secondPart : null;
    return tokenDistribution(logits, targets, { temperature, secondPart, learning });
  }

  /** The training graph of one micro-batch: loss, per-token statistics, and a gradient `d:<parameter>` for every trained parameter. */
  lossGraph(graph: Graph, shape: BatchShape, loss: LossSpec): Record<string, Value> {
    const { logProbs, entropy } = this.#distribution(graph, shape, true);
    const input = (name: keyof TargetFeeds): Value => graph.input(name, [logProbs.size]);
    const kl = loss.policy === 'likelihood' ? null : loss.kl;
    const scalar = weightedLoss(
      input('weights'),
      gainOf(loss, logProbs, input),
      kl === null ? null : klTerm(logProbs, input('reference'), kl),
    );
    const trained = [...graph.parameters].filter(([name]) => isTrained(this.model, name));
    const names = trained.map(([name]) => name);
    const found = gradients(
      scalar,
      trained.map(([, value]) => value),
    );
    return {
      loss: scalar,
      logProbs,
      entropy,
      ...Object.fromEntries(names.map((name, i) => [`${GRADIENT}${name}`, found[i]])),
    };
  }
}

/** Sorts the rows of all micro-batches back to their answers. */
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

/** Weighted tokens whose exponent of k3 is beyond its limit. */
function clampedExponents(lessons: readonly TokenLesson[], statistics: readonly (readonly Statistics[])[]): number {
  let count = 0;
  lessons.forEach(({ targets }, i) =>
    targets.forEach(({ weights, reference }, g) => {
      const { logProbs } = statistics[i][g];
      weights.forEach((w, t) => {
        if (w !== 0 && reference !== null && reference.logProbs[t] - logProbs[t] > KL_EXPONENT_LIMIT) count += 1;
      });
    }),
  );
  return count;
}

function rowsOf(result: Readonly<Record<string, unknown>>): TokenStatistics {
  return { logProbs: result['logProbs'] as Float32Array, entropy: result['entropy'] as Float32Array };
}

function cut<T extends TokenGroup>(group: T, start: number, end: number): T {
  const targets = (group as Partial<TokenLesson>).targets;
  return {
    ...group,
    answers: group.answers.slice(start, end),
    ...(targets === undefined ? {} : { targets: targets.slice(start, end) }),
  };
}

/** Where each part of `size` begins within `length`. */
function starts(length: number, size: number): number[] {
  return Array.from({ length: Math.ceil(length / size) }, (_, i) => i * size);
}

function largestDivisor(of: number, atMost: number): number {
  for (let n = Math.min(of, atMost); n > 1; n--) if (of % n === 0) return n;
  return 1;
}

/** What targets say, each a row per token of a micro-batch; 0 for padding, which carries no weight. */
type TargetFeeds = Readonly<Record<'weights' | 'advantages' | 'reference' | 'old', Float32Array>>;

function targetFeeds(lessons: readonly TokenLesson[], shape: BatchShape): TargetFeeds {
  const rows = shape.prompts * shape.answersPerPrompt * shape.answerColumns;
  const feeds = {
    weights: new Float32Array(rows),
    advantages: new Float32Array(rows),
    reference: new Float32Array(rows),
    old: new Float32Array(rows),
  };
  lessons.forEach(({ answers, targets }, p) => {
    answers.forEach(({ ids }, g) => {
      const { weights, advantage, reference, old } = targets[g];
      const start = (p * shape.answersPerPrompt + g) * shape.answerColumns;
      feeds.weights.set(weights, start);
      feeds.advantages.fill(advantage, start, start + ids.length);
      if (reference !== null) feeds.reference.set(reference.logProbs, start);
      if (old !== null) feeds.old.set(old.logProbs, start);
    });
  });
  return feeds;
}
