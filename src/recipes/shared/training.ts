/** Opens the training of any policy, from labels or from rewards, with its scorer and its held-out evaluation. */
import { InternalError } from '../../core/errors.js';
import type { Answer, Policy } from '../../train/policies/policy.js';
import { measuredReward } from '../../rewards/schema/reward.js';
import { asksJudge } from '../../rewards/score/choice.js';
import type { GrpoSettings, WordsSftSettings } from '../../config/schema/algorithm.js';
import type { TrainedSettings } from '../../config/schema/run.js';
import { openScorer } from '../../train/scoring/judge_scorer.js';
import type { Prompt, Task } from '../../train/scoring/task.js';
import {
  openGrpo,
  openHeldOut,
  type TrainingContext,
  type GrpoParts,
  type JudgedSettings,
} from '../../train/context.js';
import type { Collector } from '../../train/batch.js';
import type { HeldOut } from '../../train/held_out.js';
import type { Training } from '../../train/loop.js';
import { scheduleOf } from '../../train/update.js';
import { SupervisedTraining, type LabelledAnswer, type SupervisedDeps } from '../../train/supervised.js';

/** What supervised training learns from, and what its held-out loss is computed on. */
export type Labels<P extends Prompt, A extends Answer> = Pick<SupervisedDeps<P, A, never>, 'batch' | 'heldOutBatch'>;

/** Source of a task's labelled answers. */
interface LabelSource<P, A, S extends { readonly length: number }> {
  readonly heldOut: readonly { readonly source: S }[];
  /** The labelled answer at a global position of the endless training order, for the batch of an iteration. */
  readonly at: (globalIndex: number, iteration: number) => Promise<LabelledAnswer<P, A>>;
  /** The labelled answer of a held-out sample; the first `count` of its dataset are used. */
  readonly heldOutAt: (source: S, index: number, count: number) => Promise<LabelledAnswer<P, A>>;
}

/** Batches of `size` labels, and the first `prompts` of each held-out set. */
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

/** What answers prompts, and what happens to the answers. */
interface Answering<P extends Prompt, A extends Answer, H> {
  readonly task: Task<P, A>;
  readonly policy: Policy<NoInfer<P>, A, H>;
  /** How held-out answers are sampled. */
  readonly samplings: Readonly<Record<string, H>>;
  readonly longestAnswer: number | null;
}

/** Scores the answers; null if a supervised run has no judge, and so only reports losses. */
export async function openEvaluation<P extends Prompt, A extends Answer, H>(
  settings: JudgedSettings & Pick<TrainedSettings, 'algorithm'>,
  context: TrainingContext,
  { task, policy, samplings, longestAnswer }: Answering<P, A, H>,
): Promise<(Collector<P, A, H> & { readonly heldOut: HeldOut<P, A, H> }) | null> {
  const { group, judge } = context;
  const reward = measuredReward(settings);
  if (settings.algorithm.type === 'sft' && judge === null && asksJudge(reward)) return null;
  const scorer = await openScorer({ ...settings, reward }, context, judge, task.sources);
  const collector = { task, policy, scorer, group };
  return { ...collector, heldOut: openHeldOut(settings, context, collector, samplings, longestAnswer) };
}

/** Training from labels. The held-out evaluation, if there is one, also disposes of the policy and the task. */
export function openSupervised<P extends Prompt, A extends Answer, H>(
  settings: TrainedSettings & { readonly algorithm: WordsSftSettings },
  {
    task,
    ...parts
  }: Labels<P, A> &
    Pick<SupervisedDeps<NoInfer<P>, A, H>, 'policy' | 'heldOut' | 'besides'> & {
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

/** The run settings that training of either kind depends on. */
export type LearntSettings = Omit<TrainedSettings, 'algorithm' | 'validation'> &
  JudgedSettings & { readonly algorithm: GrpoSettings | WordsSftSettings };

/** Training by the algorithm in the settings: from labels or from rewards. */
export async function openTraining<P extends Prompt, A extends Answer, H, S extends LearntSettings>(
  settings: S,
  context: TrainingContext,
  {
    isScored = true,
    labels,
    rewards,
    ...answering
  }: Answering<P, A, H> & {
    /** Whether its answers are scored; default: yes. */
    readonly isScored?: boolean;
    readonly labels: (algorithm: SupervisedAlgorithm<S>) => Labels<P, A>;
    readonly rewards: (
      algorithm: RewardAlgorithm<S>,
    ) => Omit<GrpoParts<P, A, H>, keyof Collector<P, A, H> | 'heldOut' | 'longestAnswer' | 'schedule'>;
  },
): Promise<Training> {
  const { algorithm } = settings;
  const { task, policy, longestAnswer } = answering;
  const evaluation = isScored ? await openEvaluation(settings, context, answering) : null;
  if (algorithm.type === 'sft') {
    const parts = {
      task,
      policy,
      heldOut: evaluation?.heldOut ?? null,
      ...labels(algorithm as SupervisedAlgorithm<S>),
    };
    return openSupervised({ ...settings, algorithm }, parts);
  }
  if (evaluation === null) throw new InternalError('learning from rewards without a reward');
  const parts = {
    ...evaluation,
    ...rewards(algorithm as RewardAlgorithm<S>),
    longestAnswer,
    schedule: scheduleOf(settings),
  };
  return openGrpo({ ...settings, algorithm }, context, parts);
}

/** The algorithm settings for learning from labels, and those for learning from rewards. */
export type SupervisedAlgorithm<S extends LearntSettings> = Extract<S['algorithm'], { readonly type: 'sft' }>;
export type RewardAlgorithm<S extends LearntSettings> = Exclude<S['algorithm'], { readonly type: 'sft' }>;
