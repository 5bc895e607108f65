/**
 * GRPO (Shao et al., 2024) for every policy and task: draw, rollout, advantages, update, and observers of each
 * iteration.
 */
import { RandomStream } from '../core/random.js';
import { compileSeconds, runtimeSeconds } from '../compute/onnx/session.js';
import type { CheckpointFiles } from '../models/files.js';
import type { Answer, ReleaseCheckpoint } from './policies/policy.js';
import type { Metrics } from '../run/metrics.js';
import type { GrpoSettings } from '../config/schema/algorithm.js';
import { promptsPerIteration, type JudgedRollout } from '../config/schema/training.js';
import type { Prompt } from './scoring/task.js';
import { AdvantageRule, type GroupAdvantages } from './advantages.js';
import { SampledAhead } from './ahead.js';
import { collectRounds, gatherEpisodes, type Collected, type Collector, type TrainBatch } from './batch.js';
import { requireCapabilities } from './capabilities.js';
import { episodeMetrics, outcomeMetrics, Stopwatch } from './grpo_metrics.js';
import type { HeldOut } from './held_out.js';
import type { Training } from './loop.js';
import { Draws, refilling, KeptGroups } from './refill.js';
import { readTrainerState, trainerFile } from './trainer_state.js';
import { lossOf, update, type UpdateOptions } from './update.js';

/** Observes a trained iteration. Every rank calls it with the metrics so far, and it returns more metrics. */
export type Observer<P, A> = (batch: TrainBatch<P, A>, metrics: Metrics) => Metrics;

export interface GrpoDeps<P extends Prompt, A extends Answer, H>
  extends Collector<P, A, H>, Omit<UpdateOptions<P, A>, 'policy'> {
  readonly algorithm: GrpoSettings;
  readonly rollout: JudgedRollout;
  /**
   * Sampling settings of an iteration. They depend only on its number, so that a resumed run samples in the same way.
   */
  readonly how: (iteration: number) => H;
  /** Held-out evaluation. Closing it also closes the policy, the scorer and the task. */
  readonly heldOut: HeldOut<P, A, H>;
  /** Whether an iteration's images are kept. */
  readonly keepsImages: (iteration: number) => boolean;
  /** Called only on rank 0. */
  readonly record: (batch: TrainBatch<P, A>, advantages: readonly GroupAdvantages[]) => Promise<void>;
  readonly observers: readonly Observer<P, A>[];
  /** The last iteration that is sampled while the previous one trains. Absent if none is. */
  readonly aheadUntil?: number;
}

export class GrpoTraining<P extends Prompt, A extends Answer, H> implements Training {
  readonly #advantages: AdvantageRule;
  readonly #sampled: SampledAhead<Draws<P>, Collected<A>[]>;
  /** Number of optimizer steps at the end of the last complete iteration. */
  #wholeSteps: number;

  /** Raises ConfigError when the policy lacks a required capability. */
  constructor(private readonly deps: GrpoDeps<P, A, H>) {
    const { policy, algorithm, heldOut, task, rollout, aheadUntil } = deps;
    const average = heldOut.weights === 'average' || deps.sampledBy === 'average';
    requireCapabilities(policy.capabilities, { loss: lossOf(algorithm), average });
    this.#wholeSteps = policy.steps;
    this.#advantages = new AdvantageRule(algorithm);
    this.#sampled = new SampledAhead({
      ...(aheadUntil === undefined ? {} : { until: aheadUntil }),
      policy,
      draw: (iteration) =>
        Draws.begin({ iteration, task, planned: promptsPerIteration(rollout), refills: rollout.refill?.rounds ?? 0 }),
      collect: (iteration, draws, watch) => this.#rollout(iteration, draws, watch),
    });
  }

  async step(iteration: number): Promise<Metrics> {
    const { deps } = this;
    const watch = new Stopwatch();
    const [runtimeBefore, compileBefore] = [runtimeSeconds(), compileSeconds()];
    const { drawn, made, behind } = await this.#sampled.take(iteration, watch);
    const batch = await watch.time('exchange', () => this.#gathered(iteration, drawn, made));
    const kept = new KeptGroups(batch.rounds, batch.outcomes.map(this.#advantages.spread));
    const groups = kept.pick(batch.groups);
    const advantages = this.#advantages.of(kept.pick(batch.outcomes));
    const updated = await update(iteration, groups, advantages, deps, watch);
    const placed = kept.place(advantages, deps.rollout.generations_per_sample);
    if (batch.kept !== null) await deps.record(batch, placed);
    let metrics: Metrics = {
      ...outcomeMetrics(batch.outcomes.flat()),
      ...episodeMetrics(batch.groups, placed, deps.longestAnswer),
      ...(deps.rollout.refill === null ? {} : kept.metrics()),
      ...updated,
      ...(behind === null ? {} : { 'policy/steps_behind': behind }),
    };
    for (const observe of deps.observers) metrics = { ...metrics, ...observe(batch, metrics) };
    const times = watch.times();
    this.#wholeSteps = deps.policy.steps;
    const actions = batch.groups.flatMap(({ answers }) => answers.map(({ logProbs }) => logProbs.length));
    return {
      ...metrics,
      ...times,
      'time/onnxruntime': runtimeSeconds() - runtimeBefore,
      'time/compile': compileSeconds() - compileBefore,
      [`${deps.policy.actions}/s`]: actions.reduce((sum, one) => sum + one, 0) / times['time/total'],
    };
  }

  async evaluate(iteration: number): Promise<Metrics> {
    // Otherwise, evaluation would replace the weights that sample.
    await this.#sampled.settled();
    const watch = new Stopwatch();
    const metrics = await this.deps.heldOut.evaluate(iteration);
    return { ...metrics, 'time/validation': watch.elapsed() };
  }

  get hasPartialStep(): boolean {
    return this.deps.policy.steps !== this.#wholeSteps;
  }

  async restore(checkpoint: string): Promise<void> {
    const { policy } = this.deps;
    const { optimizer_steps } = readTrainerState(checkpoint);
    await policy.restore(checkpoint, optimizer_steps);
    this.#wholeSteps = policy.steps;
  }

  async files(iteration: number): Promise<CheckpointFiles> {
    const { policy } = this.deps;
    return { ...(await policy.files()), ...trainerFile({ iteration, optimizer_steps: policy.steps }) };
  }

  shouldStop(): null {
    return null;
  }

  release(folder: string): ReleaseCheckpoint | null {
    return this.deps.policy.release?.(folder) ?? null;
  }

  checksum(): Promise<string> {
    return this.deps.policy.checksum();
  }

  async dispose(): Promise<void> {
    await this.#sampled.settled();
    await this.deps.heldOut.dispose();
  }

  /** This rank's share of the answers, by round. */
  #rollout(iteration: number, draws: Draws<P>, watch: Stopwatch): Promise<Collected<A>[]> {
    const { group, rollout, how, seed, sampledBy = 'current' } = this.deps;
    const prompts = [...draws.prompts];
    const request = {
      prompts,
      answersPerPrompt: rollout.generations_per_sample,
      how: how(iteration),
      weights: sampledBy,
      chunk: rollout.chunk_groups ?? prompts.length,
      random: (p: number, g: number) => new RandomStream(seed, 'rollout', iteration, p, g),
      key: (p: number, g: number) => `${iteration}/${p}/${g}`,
    };
    const further = refilling({
      rounds: rollout.refill?.rounds ?? 0,
      spread: this.#advantages.spread,
      group,
      draw: (count) => draws.next(count),
    });
    return collectRounds(this.deps, request, ({ outcomes }) => further(outcomes), watch);
  }

  async #gathered(
    iteration: number,
    { prompts, places, rounds }: Draws<P>,
    made: readonly Collected<A>[],
  ): Promise<TrainBatch<P, A>> {
    const { group, keepsImages, policy } = this.deps;
    const outline = (answer: A): A => policy.outline?.(answer) ?? answer;
    const { answers, ...all } = await gatherEpisodes(group, made, keepsImages(iteration), outline);
    return { iteration, groups: prompts.map((prompt, i) => ({ prompt, answers: answers[i] })), ...all, places, rounds };
  }
}
