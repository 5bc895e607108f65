/** GRPO (Shao et al., 2024), for every policy and task: prompts -> answers -> artifacts -> outcomes -> advantages -> update -> record. */
import type { GrpoSettings } from '../schema/algorithm.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import type { JudgedRollout } from '../schema/training.js';
import { RandomStream } from '../core/random.js';
import { compileSeconds, runtimeSeconds } from '../engines/onnx/session.js';
import type { CheckpointFiles } from '../models/files.js';
import type { Answer, ReleaseCheckpoint } from '../policies/policy.js';
import type { Outcome } from '../rewards/score/types.js';
import type { Metrics } from '../run/metrics.js';
import { promptKey, type Prompt } from '../scoring/task.js';
import { outcomeAdvantages, withoutZeroSpread, extendHistory, type PromptHistory } from './advantages.js';
import { requireCapabilities } from './capabilities.js';
import { collectRounds, type CollectRequest, type Collected, type Collector } from './collect.js';
import { Draws, refilling, spreadOf, TaughtGroups, type Spread } from './refill.js';
import { gatherEpisodes, type IterationRecord } from './episodes.js';
import { episodeMetrics, outcomeMetrics } from './grpo_metrics.js';
import {
  limitMetrics,
  hackMetrics,
  measureAnswer,
  sameScoreMetrics,
  unscoredMetrics,
  type HackAlarms,
  type AnswerStatistics,
  secondGapMetrics,
} from './hack_alarms.js';
import type { HeldOut } from './held_out.js';
import type { Training } from './loop.js';
import { Stopwatch } from './stopwatch.js';
import { readTrainerState, trainerFile } from './trainer_state.js';
import { lossOf, update, type UpdateOptions } from './update.js';

export interface GrpoDeps<P extends Prompt, A extends Answer, H>
  extends Collector<P, A, H>, Omit<UpdateOptions<P, A>, 'policy'> {
  readonly algorithm: GrpoSettings;
  readonly rollout: JudgedRollout;
  readonly reward: Pick<RewardSettings, 'terms'>;
  /** How an iteration's answers are sampled: a function of its number alone, so that a resumed run samples alike. */
  readonly how: (iteration: number) => H;
  /** Held-out evaluation. Closing it also closes the policy, the scorer and the task. */
  readonly heldOut: HeldOut<P, A, H>;
  /** Whether the images of an iteration are kept. */
  readonly keepsImages: (iteration: number) => boolean;
  /** Called only on rank 0. */
  readonly record: (record: IterationRecord<P, A>) => Promise<void>;
  /** Scales of the reward and of the terms that are only recorded. */
  readonly scales: Parameters<typeof secondGapMetrics>[1];
  /** Watches the policy's outputs; only on rank 0, null if nothing is watched. */
  readonly hackAlarms: HackAlarms | null;
  /**
   * The last iteration whose answers are sampled and scored while the one before it trains, with the weights that this one started with. Absent: every
   * iteration's answers are sampled once the one before has been learnt.
   */
  readonly aheadUntil?: number;
}

/** An iteration's answers of this rank by rounds, and what its prompts are. */
interface CollectedIteration<P extends Prompt, A> {
  readonly draws: Draws<P>;
  readonly rounds: readonly (Collected<A> & { readonly measured: readonly (readonly AnswerStatistics[])[] })[];
  /** Optimizer steps that the weights which sampled had behind them. */
  readonly steps: number;
}

export class GrpoTraining<P extends Prompt, A extends Answer, H> implements Training {
  #history: PromptHistory = {};
  /** Optimizer steps at the end of the last whole iteration. */
  #wholeSteps: number;
  /** The next iteration, under way while this one trains. */
  #ahead: { readonly iteration: number; readonly collected: Promise<CollectedIteration<P, A>> } | null = null;

  /** Raises ConfigError when the policy cannot do what is required of it. */
  constructor(private readonly deps: GrpoDeps<P, A, H>) {
    const { policy, algorithm, heldOut } = deps;
    const average = heldOut.weights === 'average' || deps.sampledBy === 'average';
    requireCapabilities(policy.capabilities, { loss: lossOf(algorithm), average });
    this.#wholeSteps = policy.steps;
  }

  get hasPartialStep(): boolean {
    return this.deps.policy.steps !== this.#wholeSteps;
  }

  async restore(checkpoint: string): Promise<void> {
    const { policy } = this.deps;
    const { optimizer_steps, prompt_history = {} } = readTrainerState(checkpoint);
    await policy.restore(checkpoint, optimizer_steps);
    this.#history = prompt_history;
    this.#wholeSteps = policy.steps;
  }

  async step(iteration: number): Promise<Metrics> {
    const { deps } = this;
    const { group, algorithm } = deps;
    const watch = new Stopwatch();
    const [runtimeBefore, compileBefore] = [runtimeSeconds(), compileSeconds()];
    const behind = this.#ahead?.iteration === iteration;
    const { draws, rounds, steps } = await this.#collected(iteration, watch);
    const staleness = behind ? { 'policy/steps_behind': deps.policy.steps - steps } : {};
    await this.#begin(iteration + 1);
    const all = await watch.time('exchange', () => {
      const outline = (answer: A): A => deps.policy.outline?.(answer) ?? answer;
      return gatherEpisodes(group, rounds, deps.keepsImages(iteration), outline);
    });
    const sampled = draws.prompts.map((prompt, i) => ({ prompt, answers: all.answers[i] }));
    const taught = new TaughtGroups(draws.rounds, all.outcomes.map(this.#spreadOf));
    const [groups, outcomes] = [taught.pick(sampled), taught.pick(all.outcomes)];
    const samples = groups.map(({ prompt }) => promptKey(prompt));
    const history =
      algorithm.advantage.scope === 'prompt_history' ? extendHistory(this.#history, samples, outcomes) : this.#history;
    const compared = outcomeAdvantages(
      outcomes,
      algorithm.advantage,
      this.#weights,
      algorithm.reward_scale,
      samples.map((key) => history[key] ?? []),
    );
    const advantages = algorithm.drop_zero_spread ? withoutZeroSpread(compared) : compared;
    const updated = await update(iteration, groups, advantages, deps, watch);
    this.#history = history;
    const none = new Array<null>(deps.rollout.generations_per_sample).fill(null);
    const paid = taught.place(advantages, (spread) => ({ ...spread, advantages: none, dropped: true }));
    if (all.kept !== null) {
      const { places } = draws;
      await deps.record({ ...all, iteration, groups: sampled, advantages: paid, kept: all.kept, places });
    }
    const scores = outcomeMetrics(all.outcomes.flat());
    const made = {
      ...scores,
      ...limitMetrics(scores),
      ...secondGapMetrics(scores, deps.scales),
      ...episodeMetrics(sampled, paid, deps.longestAnswer),
      ...(deps.rollout.refill === null ? {} : taught.metrics()),
      ...(all.measured === null
        ? {}
        : {
            ...unscoredMetrics(all.outcomes.flat()),
            ...sameScoreMetrics(all.outcomes.flat()),
            ...hackMetrics(sampled, all.measured),
          }),
    };
    const times = watch.times();
    this.#wholeSteps = deps.policy.steps;
    const actions = sampled.flatMap(({ answers }) => answers.map(({ logProbs }) => logProbs.length));
    return {
      ...made,
      ...deps.hackAlarms?.observe(iteration, { ...made, ...updated }),
      ...updated,
      ...staleness,
      ...times,
      'time/onnxruntime': runtimeSeconds() - runtimeBefore,
      'time/compile': compileSeconds() - compileBefore,
      [`${deps.policy.actions}/s`]: actions.reduce((sum, one) => sum + one, 0) / times['time/total'],
    };
  }

  /** Weights of the reward's terms. */
  get #weights(): number[] {
    return this.deps.reward.terms.map(({ weight }) => weight);
  }

  readonly #spreadOf = (outcomes: readonly Outcome[]): Spread =>
    spreadOf(outcomes, this.deps.algorithm.advantage, this.#weights);

  async evaluate(iteration: number): Promise<Metrics> {
    // It would replace the weights that sample.
    await this.#ahead?.collected.catch(() => undefined);
    const watch = new Stopwatch();
    const metrics = await this.deps.heldOut.evaluate(iteration);
    return { ...metrics, 'time/validation': watch.elapsed() };
  }

  shouldStop(): null {
    return null;
  }

  async files(iteration: number): Promise<CheckpointFiles> {
    const { policy, algorithm } = this.deps;
    const history = algorithm.advantage.scope === 'prompt_history' ? { prompt_history: this.#history } : {};
    const state = { iteration, optimizer_steps: policy.steps, ...history };
    return { ...(await policy.files()), ...trainerFile(state) };
  }

  release(folder: string): ReleaseCheckpoint | null {
    return this.deps.policy.release?.(folder) ?? null;
  }

  checksum(): Promise<string> {
    return this.deps.policy.checksum();
  }

  async dispose(): Promise<void> {
    await this.#ahead?.collected.catch(() => undefined);
    await this.deps.heldOut.dispose();
  }

  /** What was begun while the iteration before trained, or what is collected from here on. */
  async #collected(iteration: number, watch: Stopwatch): Promise<CollectedIteration<P, A>> {
    const ahead = this.#ahead;
    this.#ahead = null;
    if (ahead?.iteration === iteration) return watch.time('rollout', () => ahead.collected);
    return this.#collect(iteration, await this.#draws(iteration), watch);
  }

  /** Begins to collect an iteration that is to be sampled ahead, with the weights of now. An error is raised by the step that needs the answers. */
  async #begin(iteration: number): Promise<void> {
    const { aheadUntil } = this.deps;
    if (aheadUntil === undefined || iteration > aheadUntil) return;
    const draws = await this.#draws(iteration);
    // What samples is decided before anything is learnt: it publishes the weights of now first of all.
    const collected = this.#collect(iteration, draws, new Stopwatch());
    collected.catch(() => undefined);
    this.#ahead = { iteration, collected };
  }

  async #collect(iteration: number, draws: Draws<P>, watch: Stopwatch): Promise<CollectedIteration<P, A>> {
    const { policy, group } = this.deps;
    const { steps } = policy;
    const measured: (readonly AnswerStatistics[])[] = [];
    const further = refilling({
      rounds: this.#refills,
      spread: this.#spreadOf,
      group,
      draw: (count) => draws.next(count),
    });
    const asked = this.#asked(iteration, [...draws.prompts], measured);
    const rounds = await collectRounds(this.deps, asked, ({ outcomes }) => further(outcomes), watch);
    let at = 0;
    const own = rounds.map((round) => ({ ...round, measured: measured.slice(at, (at += round.answers.length)) }));
    return { draws, rounds: own, steps };
  }

  /** The largest number of further rounds of an iteration. */
  get #refills(): number {
    return this.deps.rollout.refill?.rounds ?? 0;
  }

  #draws(iteration: number): Promise<Draws<P>> {
    return Draws.begin({ iteration, task: this.deps.task, refills: this.#refills });
  }

  #asked(iteration: number, prompts: readonly P[], measured: (readonly AnswerStatistics[])[]): CollectRequest<P, H> {
    const { rollout, how, seed, sampledBy = 'current' } = this.deps;
    return {
      prompts,
      answersPerPrompt: rollout.generations_per_sample,
      how: how(iteration),
      weights: sampledBy,
      chunk: rollout.chunk_groups ?? prompts.length,
      random: (p, g) => new RandomStream(seed, 'rollout', iteration, p, g),
      key: (p, g) => `${iteration}/${p}/${g}`,
      onChunk: (chunk) => measured.push(...chunk.map((made) => made.map(({ item }) => measureAnswer(item)))),
    };
  }
}
