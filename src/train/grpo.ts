/** GRPO as EARL does it: prompts -> rollout -> render -> score -> advantages -> update -> record. */
import { InternalError } from '../core/errors.js';
import { RandomStream } from '../core/random.js';
import { runtimeSeconds } from '../engines/onnx/session.js';
import type { GrpoSettings, ImageEditSettings } from '../config/settings.js';
import type { TokenAnswer } from '../policies/tokens/batch.js';
import type { LearningGroup } from '../policies/tokens/learner.js';
import { Learner } from '../policies/tokens/learner.js';
import type { Weights } from '../models/files.js';
import { shareOf } from '../group/peers.js';
import type { Sampler } from '../policies/tokens/rollout.js';
import type { JudgeItem, Outcome } from '../rewards/types.js';
import type { CheckpointFiles } from '../models/files.js';
import type { Metrics } from '../run/metrics.js';
import type { EditPrompt, ImageEditTask, RenderedAnswer } from '../recipes/image_edit_tokens/task.js';
import { sessionOptions } from '../engines/onnx/session_options.js';
import type { GroupAdvantages } from './advantages.js';
import { BegunScoring } from '../scoring/begun_scoring.js';
import { recordsImages } from './episode_records.js';
import { describeArtifacts, measureArtifact, type ArtifactStatistics, type HackAlarms } from './hack_alarms.js';
import { describeEpisodes, describeOutcomes, describeUpdate } from './grpo_metrics.js';
import type { HeldOut } from './held_out.js';
import { isAsked, type HeldOutJudge, type ScoredItem } from '../scoring/held_out_judge.js';
import type { Training } from './loop.js';
import { outcomeAdvantages } from './outcome_advantages.js';
import type { PolicyState } from '../engines/onnx/trained_weights.js';
import type { ProcessGroup } from '../group/process_group.js';
import type { Scorer } from '../scoring/scorer.js';
import { Stopwatch } from './stopwatch.js';

/** A prompt of an iteration with its answers, as every rank knows them. */
export interface AnswerGroup {
  readonly prompt: EditPrompt;
  readonly answers: readonly TokenAnswer[];
}

/** The same with what is recorded of the answers' images. */
export interface EpisodeGroup extends AnswerGroup {
  readonly rendered: readonly RecordedAnswer[];
}

export interface RecordedAnswer {
  readonly parsed: RenderedAnswer['parsed'];
  readonly item: Pick<JudgeItem, 'key' | 'instruction' | 'edited'>;
}

/** What a rank made of its share of the prompts. */
interface OwnEpisodes {
  readonly answers: readonly (readonly TokenAnswer[])[];
  readonly rendered: readonly (readonly RenderedAnswer[])[];
  readonly scoring: BegunScoring;
  readonly measured: readonly (readonly (ArtifactStatistics | null)[])[];
}

/** An iteration's episodes, as they are recorded. */
export interface IterationRecord {
  readonly iteration: number;
  readonly groups: readonly EpisodeGroup[];
  readonly outcomes: readonly (readonly Outcome[])[];
  readonly advantages: readonly GroupAdvantages[];
}

export interface GrpoDeps {
  readonly settings: ImageEditSettings;
  readonly task: ImageEditTask;
  readonly policy: PolicyState;
  /** The frozen start that KL is measured to. */
  readonly reference: Weights;
  readonly sampler: Sampler;
  readonly scorer: Scorer;
  readonly heldOut: HeldOut;
  readonly group: ProcessGroup;
  /** Called on rank 0 alone. */
  readonly record: (record: IterationRecord) => Promise<void>;
  readonly alarm: (message: string) => void;
  /** Watches what the policy makes; on rank 0 alone, and absent where nothing is watched. */
  readonly hackAlarms?: HackAlarms | null;
  /** The judge at `reward.held_out_judge`; on rank 0 alone. */
  readonly heldOutJudge?: HeldOutJudge | null;
}

/** Above this difference between the log-probabilities of rollout and training graph an alarm is raised. */
const MISMATCH_ALARM = 1e-3;

export class GrpoTraining implements Training {
  readonly kind = 'grpo';
  readonly #learner: Learner;
  readonly #algorithm: GrpoSettings;

  constructor(private readonly deps: GrpoDeps) {
    const { settings, policy } = deps;
    if (settings.algorithm.type !== 'grpo') throw new InternalError('GRPO of a supervised config');
    this.#algorithm = settings.algorithm;
    this.#learner = new Learner(policy.model, {
      temperature: settings.rollout.temperature,
      separateVocabularies: settings.policy.separate_language_and_vision_vocabs,
      microBatch: settings.optimizer.per_device_batch_size,
      gradientCheckpointing: settings.optimizer.gradient_checkpointing,
      session: sessionOptions(settings.policy.engine),
      peers: deps.group,
    });
  }

  async step(iteration: number): Promise<Metrics> {
    const watch = new Stopwatch();
    const runtimeBefore = runtimeSeconds();
    const prompts = this.#prompts(iteration);
    const own = await this.#rollout(iteration, prompts, watch);
    const settled = await watch.time('judge', () => this.#settle(own));
    const { answers, outcomes, rendered, measured } = await watch.time('exchange', () =>
      this.#exchange(iteration, own, settled),
    );
    const secondOpinion = await this.#askHeldOutJudge(iteration, prompts.length, own, settled);
    const groups = prompts.map((prompt, i): AnswerGroup => ({ prompt, answers: answers[i] }));
    const advantages = outcomeAdvantages(
      outcomes,
      this.#algorithm.advantage,
      this.deps.settings.reward.terms.map(({ weight }) => weight),
      this.#algorithm.reward_scale,
    );
    const update = await this.#update(iteration, groups, advantages, watch);
    if (rendered !== null) {
      const recorded = groups.map((group, i) => ({ ...group, rendered: rendered[i] }));
      await this.deps.record({ iteration, groups: recorded, outcomes, advantages });
    }
    const tokens = sum(groups.flatMap(({ answers }) => answers.map(({ ids }) => ids.length)));
    const made = {
      ...describeOutcomes(outcomes.flat()),
      ...describeEpisodes(groups, advantages),
      ...this.#describeArtifacts(groups, measured),
      ...(await secondOpinion()),
    };
    const times = watch.times();
    return {
      ...made,
      ...this.deps.hackAlarms?.observe(iteration, made),
      ...update,
      ...times,
      'time/onnxruntime': runtimeSeconds() - runtimeBefore,
      'tokens/s': tokens / times['time/total'],
    };
  }

  async evaluate(iteration: number): Promise<Metrics> {
    const watch = new Stopwatch();
    const metrics = await this.deps.heldOut.evaluate(iteration);
    return { ...metrics, 'time/validation': watch.elapsed() };
  }

  shouldStop(): null {
    return null;
  }

  files(iteration: number): CheckpointFiles {
    return this.deps.policy.files(iteration);
  }

  checksum(): string {
    return this.deps.policy.checksum();
  }

  async dispose(): Promise<void> {
    const { heldOut, heldOutJudge, task } = this.deps;
    // Its last answers are stored where the scorer's are.
    await heldOutJudge?.close();
    await Promise.all([this.#learner.dispose(), heldOut.dispose(), task.dispose()]);
  }

  #prompts(iteration: number): EditPrompt[] {
    const { episodes_per_iteration, generations_per_sample } = this.deps.settings.rollout;
    const count = episodes_per_iteration / generations_per_sample;
    const first = (iteration - 1) * count;
    return Array.from({ length: count }, (_, i) => this.deps.task.prompt(this.deps.task.trainingSample(first + i)));
  }

  /** Samples this rank's share chunk by chunk; a finished chunk is rendered and put to the judge while the next one is sampled. */
  async #rollout(iteration: number, prompts: readonly EditPrompt[], watch: Stopwatch): Promise<OwnEpisodes> {
    const { rollout, seed } = this.deps.settings;
    const share = shareOf(prompts.length, this.deps.group);
    const chunk = rollout.chunk_groups ?? prompts.length;
    const own = {
      answers: [] as TokenAnswer[][],
      rendered: [] as RenderedAnswer[][],
      scoring: new BegunScoring(this.deps.scorer),
      measured: [] as (ArtifactStatistics | null)[][],
    };
    try {
      for (let start = share.start; start < share.end; start += chunk) {
        const part = prompts.slice(start, Math.min(start + chunk, share.end));
        const answers = await watch.time('rollout', () =>
          this.deps.sampler.sample(
            part.map(({ tokens }) => tokens),
            {
              answersPerPrompt: rollout.generations_per_sample,
              maxTokens: rollout.max_response_tokens,
              temperature: rollout.temperature,
              topP: rollout.top_p,
              topK: rollout.top_k,
              logProbTemperature: rollout.temperature,
            },
            (p, g) => new RandomStream(seed, 'rollout', iteration, start + p, g),
          ),
        );
        const rendered = await watch.time('render', () =>
          Promise.all(
            part.map((prompt, p) => {
              const keys = answers[p].map((_, g) => `${iteration}/${start + p}/${g}`);
              return this.deps.task.render(prompt, answers[p], keys);
            }),
          ),
        );
        own.answers.push(...answers);
        own.rendered.push(...rendered);
        own.scoring.begin(rendered.flatMap((group) => group.map(({ item }) => item)));
        // While the judge is at work.
        own.measured.push(...rendered.map((group) => group.map(({ item }) => measureArtifact(item))));
      }
    } catch (error) {
      throw await own.scoring.firstError(error);
    }
    return own;
  }

  async #settle({ answers, rendered, scoring }: OwnEpisodes): Promise<Outcome[][]> {
    const settled = await this.deps.scorer.settle(
      rendered.flatMap((group) => group.map(({ item }) => item)),
      await scoring.outcomes(),
    );
    let at = 0;
    return answers.map((group) => settled.slice(at, (at += group.length)));
  }

  /** Every rank's answers and outcomes, in the order of the prompts, for all; their images for rank 0, that records them. */
  async #exchange(
    iteration: number,
    { answers, rendered, measured }: OwnEpisodes,
    outcomes: readonly (readonly Outcome[])[],
  ): Promise<{
    answers: (readonly TokenAnswer[])[];
    outcomes: (readonly Outcome[])[];
    rendered: (readonly RecordedAnswer[])[] | null;
    measured: (readonly (ArtifactStatistics | null)[])[] | null;
  }> {
    const { group, settings } = this.deps;
    const all = await group.allGather({ answers, outcomes });
    const images = recordsImages(iteration, settings.track.log_episodes_every_n_iterations);
    const recorded: readonly (readonly RecordedAnswer[])[] =
      group.rank === 0
        ? rendered
        : rendered.map((one) =>
            one.map(({ parsed, item: { key, instruction, edited } }) => {
              return { parsed, item: { key, instruction, edited: images ? edited : null } };
            }),
          );
    const kept = await group.gather({ recorded, measured });
    return {
      answers: all.flatMap((one) => one.answers),
      outcomes: all.flatMap((one) => one.outcomes),
      rendered: kept?.flatMap((one) => one.recorded) ?? null,
      measured: kept?.flatMap((one) => one.measured) ?? null,
    };
  }

  /** Begins asking the held-out judge about some episodes of all ranks, on rank 0, while the policy is updated; gives its metrics when asked to. */
  async #askHeldOutJudge(
    iteration: number,
    prompts: number,
    { rendered }: OwnEpisodes,
    outcomes: readonly (readonly Outcome[])[],
  ): Promise<() => Promise<Record<string, number>>> {
    const { group, heldOutJudge, settings } = this.deps;
    const second = settings.reward.held_out_judge;
    const nothing = async (): Promise<Record<string, number>> => ({});
    if (second === null || iteration % second.every_n_iterations !== 0) return nothing;
    const first = shareOf(prompts, group).start * settings.rollout.generations_per_sample;
    const own = rendered.flatMap((one, g) => one.map(({ item }, i): ScoredItem => ({ item, outcome: outcomes[g][i] })));
    const all = await group.gather(own.filter((_, i) => isAsked(first + i, second.fraction)));
    if (all === null || heldOutJudge === undefined || heldOutJudge === null) return nothing;
    const asked = heldOutJudge.compare(iteration, all.flat());
    // Awaited after the update; until then a failure must not count as unhandled.
    asked.catch(() => undefined);
    return () => asked;
  }

  /** Statistics over all ranks' artifacts, on rank 0, which keeps the metrics. */
  #describeArtifacts(
    groups: readonly AnswerGroup[],
    measured: readonly (readonly (ArtifactStatistics | null)[])[] | null,
  ): Record<string, number> {
    if (measured === null) return {};
    return describeArtifacts(
      groups.map(({ prompt: { sample }, answers }, i) => ({
        // Datasets name their samples independently of each other.
        prompt: `${sample.id} ${sample.instruction}`,
        lengths: answers.map(({ ids }) => ids.length),
        artifacts: measured[i],
      })),
    );
  }

  async #update(
    iteration: number,
    groups: readonly AnswerGroup[],
    advantages: readonly GroupAdvantages[],
    watch: Stopwatch,
  ): Promise<Record<string, number>> {
    const { kl_coeff, kl_estimator, clip_range, inner_epochs } = this.#algorithm;
    const used = groups.flatMap(({ prompt, answers }, i) =>
      advantages[i].dropped ? [] : [{ prompt: prompt.tokens, answers, advantages: advantages[i].advantages }],
    );
    if (used.length === 0) {
      this.deps.alarm(`iteration ${iteration}: no group has two scored episodes; the policy is left as it is`);
      return { 'group/used': 0 };
    }
    const reference = await watch.time('reference', () => this.#learner.statistics(used, this.deps.reference));
    const ratio = clip_range !== null || inner_epochs > 1;
    const old = ratio
      ? await watch.time('reference', () => this.#learner.statistics(used, this.deps.policy.model.weights))
      : null;
    const trained = used.map(({ answers }) => answers.map(({ ids }) => this.#trainedTokens(iteration, ids)));
    // The loss is divided by all response tokens of the iteration that take part.
    const tokens = sum(
      used.flatMap(({ answers, advantages: a }) => answers.map(({ ids }, g) => (a[g] === null ? 0 : ids.length))),
    );
    const learning: LearningGroup[] = used.map(({ prompt, answers, advantages: a }, i) => ({
      prompt,
      answers,
      targets: answers.map((_, g) => ({
        weights: a[g] === null ? new Float32Array(answers[g].ids.length) : trained[i][g].map((one) => one / tokens),
        advantage: a[g] ?? 0,
        reference: reference[i][g].logProbs,
        oldLogProbs: old?.[i]![g]!.logProbs ?? null,
      })),
    }));
    const metrics: Record<string, number> = { 'group/used': used.length };
    await watch.time('update', async () => {
      for (let epoch = 0; epoch < inner_epochs; epoch++) {
        const { gradients, loss, statistics } = await this.#learner.gradient(learning, {
          kind: 'grpo',
          klCoeff: kl_coeff,
          klEstimator: kl_estimator,
          clipRange: clip_range,
          ratio,
        });
        if (epoch === 0) {
          const described = { 'policy/loss': loss, ...describeUpdate(learning, statistics, used) };
          Object.assign(metrics, described);
          this.#checkMismatch(described['policy/rollout_mismatch']);
        }
        const step = this.deps.policy.step(gradients);
        Object.assign(metrics, { 'policy/grad_norm': step.gradNorm, 'policy/learning_rate': step.learningRate });
        if (!step.applied) {
          this.deps.alarm(`iteration ${iteration}: the gradient is not finite; this step was not taken`);
        }
      }
    });
    return metrics;
  }

  #checkMismatch(mismatch: number): void {
    if (mismatch <= MISMATCH_ALARM) return;
    this.deps.alarm(`log-probabilities of rollout and training graph differ by up to ${mismatch.toExponential(1)}`);
  }

  /** 1 on tokens that carry the loss in this iteration (EARL's text-only and vision-only cycles), else 0. */
  #trainedTokens(iteration: number, ids: Int32Array): Float32Array {
    const cycle = this.#algorithm.train_tokens;
    const restricted = cycle !== 'all' && (iteration - 1) % cycle.cycle_steps < cycle.steps;
    return Float32Array.from(ids, (id) => {
      if (!restricted) return 1;
      return this.deps.task.space.isVision(id) === (cycle.tokens === 'vision') ? 1 : 0;
    });
  }
}

function sum(values: readonly number[]): number {
  return values.reduce((total, value) => total + value, 0);
}
