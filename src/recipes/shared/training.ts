/** Opens the training of any policy, from labels or from rewards, with its scorer and its held-out evaluation. */
import { InternalError, must } from '../../core/errors.js';
import { getPath } from '../../core/schema/walk.js';
import type { LearningSettings, TrainedSettings } from '../../config/schema/run.js';
import { chunkOf, type JudgedRollout, type ValidationSettings } from '../../config/schema/training.js';
import { measuredReward, type RewardSettings } from '../../rewards/schema/reward.js';
import { asksJudge } from '../../rewards/score/choice.js';
import { highestValueOf, rewardScale } from '../../rewards/score/identity.js';
import { storeImages, writeHeldOutEpisodes } from '../../run/episodes.js';
import { readMetrics } from '../../run/metrics.js';
import { saveContactSheet } from '../../run/report/contact_sheet.js';
import { recordEpisodes, type Collector } from '../../train/batch.js';
import type { TrainingContext } from '../../train/context.js';
import { GrpoTraining, type GrpoDeps } from '../../train/grpo.js';
import { HeldOut } from '../../train/held_out.js';
import type { Training } from '../../train/loop.js';
import { HackAlarms, hackObserver } from '../../train/observers/hack_alarms.js';
import type { Answer, Policy } from '../../train/policies/policy.js';
import { openScorer, type ScoredRun } from '../../train/scoring/judge_scorer.js';
import type { Prompt, Task } from '../../train/scoring/task.js';
import { SupervisedTraining, type LabeledAnswer, type SupervisedDeps } from '../../train/supervised.js';
import { scheduleOf } from '../../train/update.js';

/** Batches of supervised training and of its held-out loss. */
export type Labels<P extends Prompt, A extends Answer> = Pick<SupervisedDeps<P, A, never>, 'batch' | 'heldOutBatch'>;

/** Source of a task's labeled answers. */
interface LabelSource<P, A, S extends { readonly length: number }> {
  readonly heldOut: readonly { readonly source: S }[];
  /** Returns the labeled answer at a global position of the endless training order, for an iteration's batch. */
  readonly at: (globalIndex: number, iteration: number) => Promise<LabeledAnswer<P, A>>;
  /** Returns the labeled answer of one of the first `count` held-out samples. */
  readonly heldOutAt: (source: S, index: number, count: number) => Promise<LabeledAnswer<P, A>>;
}

/** Batches of `size` labels, and the first `prompts` labels of each held-out set. */
export function labelsOf<P extends Prompt, A extends Answer, S extends { readonly length: number }>(
  { heldOut, at, heldOutAt }: LabelSource<P, A, S>,
  { size, prompts }: { readonly size: number; readonly prompts: number },
): Labels<P, A> {
  return {
    batch: (iteration) =>
      Promise.all(Array.from({ length: size }, (_, i) => at((iteration - 1) * size + i, iteration))),
    heldOutBatch: () =>
      Promise.all(
        heldOut.flatMap(({ source }) => {
          const count = Math.min(source.length, prompts);
          return Array.from({ length: count }, (_, i) => heldOutAt(source, i, count));
        }),
      ),
  };
}

/** A policy with its task and its sampling. */
interface Answering<P extends Prompt, A extends Answer, H> {
  readonly task: Task<P, A>;
  readonly policy: Policy<NoInfer<P>, A, H>;
  /** How held-out answers are sampled. */
  readonly samplings: Readonly<Record<string, H>>;
  readonly longestAnswer: number | null;
}

/** The parts of GRPO that a recipe determines itself. */
export type RewardParts<P extends Prompt, A extends Answer, H> = Pick<
  GrpoDeps<P, A, H>,
  'algorithm' | 'how' | 'trained' | 'mismatchAlarm' | 'sampledBy' | 'minibatchesOf' | 'importanceCap' | 'aheadUntil'
>;

/** How a policy learns, depending on the algorithm in the settings. */
export type Learning<P extends Prompt, A extends Answer, H> =
  { readonly labels: Labels<P, A> } | { readonly rewards: RewardParts<P, A, H> };

/** Settings of training with a judge, supervised or by rewards. */
export type JudgedSettings = Omit<TrainedSettings, 'validation'> &
  ScoredRun & {
    readonly rollout: JudgedRollout;
    readonly validation: Omit<ValidationSettings, 'temperature'> & Pick<RewardSettings, 'measure'>;
  };

/**
 * Opens the scorer and the held-out evaluation. Null if a supervised run has no judge and therefore reports only
 * losses.
 */
async function openEvaluation<P extends Prompt, A extends Answer, H>(
  settings: JudgedSettings,
  context: TrainingContext,
  { task, policy, samplings, longestAnswer }: Answering<P, A, H>,
): Promise<(Collector<P, A, H> & { readonly heldOut: HeldOut<P, A, H> }) | null> {
  const { algorithm, validation, rollout, optimizer } = settings;
  const { group, judge, handle } = context;
  const reward = measuredReward(settings);
  if (algorithm.type === 'sft' && judge === null && asksJudge(reward)) return null;
  const scorer = await openScorer({ ...settings, reward }, context, judge, task.sources);
  const collector = { task, policy, scorer, group };
  const averaged = optimizer.ema_decay !== null && validation.weights !== 'current';
  const heldOut = new HeldOut<P, A, H>({
    ...collector,
    validation,
    samplings,
    longestAnswer,
    weights: averaged ? 'average' : 'current',
    chunk: chunkOf(rollout),
    show: (evaluation, rows) => saveContactSheet(must(handle, 'the handle').paths, evaluation, rows),
    record: (iteration, episodes) => {
      const { paths } = must(handle, 'the handle');
      const lines = episodes.map(({ line, images }) =>
        images === null ? line : { ...line, ...storeImages(paths, images) },
      );
      writeHeldOutEpisodes(paths, iteration, lines);
    },
  });
  return { ...collector, heldOut };
}

/** Training from labels. The held-out evaluation, if there is one, also disposes of the policy and the task. */
export function openSupervised<P extends Prompt, A extends Answer, H>(
  settings: TrainedSettings & { readonly algorithm: Extract<LearningSettings, { readonly type: 'sft' }> },
  {
    task,
    ...parts
  }: Labels<P, A> &
    Pick<SupervisedDeps<NoInfer<P>, A, H>, 'policy' | 'heldOut' | 'extraFiles'> & {
      readonly task: { dispose(): Promise<void> };
    },
): SupervisedTraining<P, A, H> {
  const { policy, heldOut } = parts;
  return new SupervisedTraining<P, A, H>({
    ...parts,
    schedule: scheduleOf(settings),
    sft: settings.algorithm.sft,
    dispose: async () => {
      if (heldOut !== null) return heldOut.dispose();
      await policy.dispose();
      await task.dispose();
    },
  });
}

/** Training from labels or from rewards. Rank 0 keeps the records and watches for reward hacking. */
export async function openTraining<P extends Prompt, A extends Answer, H>(
  settings: JudgedSettings,
  context: TrainingContext,
  {
    isScored = true,
    ...parts
  }: Answering<P, A, H> &
    Learning<NoInfer<P>, A, H> & {
      /** Whether its answers are scored. Default: yes. */
      readonly isScored?: boolean;
    },
): Promise<Training> {
  const { algorithm, rollout, reward, seed, track } = settings;
  const { task, policy, longestAnswer } = parts;
  const evaluation = isScored ? await openEvaluation(settings, context, parts) : null;
  if ('labels' in parts) {
    if (algorithm.type !== 'sft') throw new InternalError('learning from labels without sft');
    const heldOut = evaluation?.heldOut ?? null;
    return openSupervised({ ...settings, algorithm }, { task, policy, heldOut, ...parts.labels });
  }
  if (evaluation === null) throw new InternalError('learning from rewards without a reward');
  const { group, handle, log } = context;
  const warn = (message: string): void => void log.logger.warn(message);
  const keepsImages = (iteration: number): boolean => iteration % track.log_episodes_every_n_iterations === 0;
  const scales = {
    most: rewardScale((path) => getPath(settings, path))?.most ?? 1,
    besides: reward.also_compute.map((name) => ({ name, most: highestValueOf(name) })),
  };
  // Rank 0 watches for all ranks, because it has the statistics of every rank and of earlier attempts.
  const alarms =
    track.alarms === null || handle === null ? null : new HackAlarms(track.alarms, readMetrics(handle.paths), warn);
  return new GrpoTraining<P, A, H>({
    ...evaluation,
    ...parts.rewards,
    longestAnswer,
    schedule: scheduleOf(settings),
    seed,
    rollout,
    keepsImages,
    record: (batch, advantages) =>
      recordEpisodes(must(handle, 'the handle').paths, batch, advantages, keepsImages(batch.iteration)),
    // All ranks raise the same alarm. Only rank 0 reports it.
    alarm: (message) => void (group.rank === 0 && warn(message)),
    observers: [hackObserver(scales, alarms)],
  });
}
