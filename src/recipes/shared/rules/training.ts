/** Rules about learning, for recipes with these sections. */
import type { GrpoSettings, VisionGrpoSettings, WordsSftSettings } from '../../../config/schema/algorithm.js';
import type { ReadSettings } from '../../../core/schema/mark.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import { termName } from '../../../rewards/score/choice.js';
import type { MeasureTerm } from '../../../rewards/score/settings.js';
import type { RewardSettings } from '../../../rewards/schema/reward.js';
import type { RolloutSettings } from '../../../config/schema/training.js';
import {
  whenSet,
  requireMultiple,
  problem,
  problemUnless,
  requireValues,
  type PartialSettings,
  type Problem,
  type Rule,
} from '../../../config/schema/rules.js';

/** Whether a run learns only from labels. Its sampled answers and their scores are then only for people to read. */
export const isSupervised = (read: ReadSettings): boolean => read('algorithm.type') === 'sft';

/** The settings that rules about groups and batches read. */
interface BatchedSettings {
  readonly algorithm: GrpoSettings | VisionGrpoSettings | WordsSftSettings;
  readonly rollout: Pick<RolloutSettings, 'episodes_per_iteration' | 'generations_per_sample' | 'refill'>;
  readonly optimizer: TrainedSettings['optimizer'];
  readonly data?: TrainedSettings['data'];
}

/** Micro-batches have a fixed composition, so a batch must consist of whole micro-batches. */
export const wholeBatches: Rule<BatchedSettings> = ({ algorithm, rollout, optimizer }) =>
  requireMultiple(
    isGrpo(algorithm)
      ? ['rollout.episodes_per_iteration', rollout?.episodes_per_iteration]
      : ['algorithm.sft.batch_size', algorithm?.sft?.batch_size],
    ['optimizer.per_device_batch_size', optimizer?.per_device_batch_size],
    'so that all micro-batches have one size',
  );

/** Rules of every recipe that editrl trains. */
export const sharedRules: readonly Rule<TrainedSettings>[] = [
  ({ data }) => [...coefficients('data.train', data?.train), ...coefficients('data.validation', data?.validation)],
  keptBest,
  ({ validation, optimizer }) =>
    problemUnless(
      validation?.weights !== 'average' || optimizer?.ema_decay !== null,
      'validation.weights',
      "found 'average' without optimizer.ema_decay; allowed: 'current', null, or with ema_decay",
    ),
];

/** Checkpoints can only be compared by a metric that evaluations record. */
function keptBest(settings: PartialSettings<TrainedSettings>): readonly Problem[] {
  const { checkpoint, algorithm, validation, reward } = settings as PartialSettings<{
    readonly checkpoint: TrainedSettings['checkpoint'];
    readonly algorithm: { readonly type: string };
    readonly validation: { readonly measure: readonly MeasureTerm[] };
    readonly reward: RewardSettings;
  }>;
  const learnsFromLabels = reward === undefined || algorithm?.type === 'sft';
  const scored = ['reward', ...(validation?.measure ?? []).map(termName)];
  const allowed = learnsFromLabels ? ['loss'] : [...scored, ...scored.map((name) => `greedy/${name}`)];
  return whenSet([checkpoint?.keep_best], (found) =>
    problemUnless(
      allowed.includes(found.replace(/^sampled\//, '')),
      'checkpoint.keep_best',
      learnsFromLabels
        ? `found '${found}'; allowed: 'loss' or null, because answers are not scored on the way where a run learns from labels`
        : `found '${found}'; allowed: ${allowed.map((name) => `'${name}'`).join(', ')} or null; a term of validation.measure is one, too`,
    ),
  );
}

/** Rules for answers that are sampled and compared within groups. */
export const groupRules: readonly Rule<BatchedSettings>[] = [
  ({ rollout }) =>
    requireMultiple(
      ['rollout.episodes_per_iteration', rollout?.episodes_per_iteration],
      ['rollout.generations_per_sample', rollout?.generations_per_sample],
      'so that every group is whole',
    ),
  ({ algorithm, rollout }) =>
    whenSet([rollout?.generations_per_sample, algorithm?.advantage?.scope], (generations, scope) =>
      problemUnless(
        !isGrpo(algorithm) || generations >= 2 || scope !== 'group',
        'rollout.generations_per_sample',
        `found ${generations}; allowed: 2 or more, because GRPO compares the answers to one prompt (or 1 with algorithm.advantage.scope 'batch')`,
      ),
    ),
  ratioOptions,
  refillWithin,
];

/** With one step per iteration, every ratio is 1 and options about ratios have no effect. */
function ratioOptions({ algorithm }: PartialSettings<BatchedSettings>): readonly Problem[] {
  if (algorithm === undefined || !isGrpo(algorithm)) return [];
  const { clip_range: low, clip_range_high: high, surrogate, inner_epochs, minibatches } = algorithm;
  if (surrogate === 'nft') {
    return requireValues({ algorithm }, "surrogate 'nft'", [
      ['algorithm.clip_range', null, 'which has no ratio to clip'],
      ['algorithm.clip_range_high', null, 'which has no ratio to clip'],
    ]);
  }
  if ((inner_epochs ?? NaN) * (minibatches ?? NaN) === 1) {
    const one = 'in which every ratio is 1';
    const idle = requireValues({ algorithm }, 'one optimizer step an iteration (inner_epochs 1, minibatches 1)', [
      ['algorithm.clip_range_high', null, one, 'more steps'],
      ['algorithm.surrogate', 'ppo', one, 'more steps'],
      ['algorithm.ratio', 'token', one, 'more steps'],
    ]);
    if (idle.length > 0) return idle;
  }
  if (low !== null) return [];
  if (surrogate === 'cispo') {
    return problemUnless(
      high !== null,
      'algorithm.clip_range_high',
      "found null with surrogate 'cispo' and clip_range null; allowed: a number above 0. The largest ratio is 1 plus this number",
    );
  }
  return problemUnless(
    high === null || high === undefined,
    'algorithm.clip_range',
    `found null with clip_range_high ${high}; allowed: a number above 0, the range below 1`,
  );
}

/** If rewards are compared across groups, groups with zero variance also have advantages. */
function refillWithin({ algorithm, rollout }: PartialSettings<BatchedSettings>): readonly Problem[] {
  return whenSet([rollout?.refill, algorithm?.advantage?.scope], (_, scope) =>
    problemUnless(
      !isGrpo(algorithm) || scope === 'group',
      'rollout.refill',
      `found with algorithm.advantage.scope '${scope}', in which groups with equal rewards also have advantages; allowed: null, or scope 'group'`,
    ),
  );
}

/** Rules for token policies, whose minibatches are whole groups. */
export const tokenGroupRules: readonly Rule<BatchedSettings>[] = [
  ...groupRules,
  ({ algorithm, rollout }) =>
    whenSet(
      [rollout?.episodes_per_iteration, rollout?.generations_per_sample, algorithm?.minibatches],
      (episodes, generations, minibatches) => {
        const prompts = episodes / generations;
        if (!Number.isInteger(prompts) || prompts % minibatches === 0) return [];
        return problem(
          'algorithm.minibatches',
          `found ${minibatches}; allowed: a divisor of the ${prompts} prompts of an iteration (rollout.episodes_per_iteration / rollout.generations_per_sample)`,
        );
      },
    ),
  ({ algorithm }) => {
    const trained = algorithm?.train_tokens;
    if (typeof trained !== 'object') return [];
    return whenSet([trained.steps, trained.cycle_steps], (steps, cycle) =>
      problemUnless(
        steps <= cycle,
        'algorithm.train_tokens.steps',
        `found ${steps}; allowed: at most cycle_steps (${cycle})`,
      ),
    );
  },
];

function coefficients(key: string, sources: NonNullable<TrainedSettings['data']>['train'] | undefined): Problem[] {
  if (sources === undefined) return [];
  const given = sources.filter(({ coefficient }) => typeof coefficient === 'number').length;
  if (given === 0 || given === sources.length) return [];
  return problem(
    key,
    `${given} of ${sources.length} sources have a coefficient; allowed: all of them, or none (then each source is upsampled to the largest)`,
  );
}

/** Whether it learns from rewards. */
function isGrpo(algorithm: PartialSettings<BatchedSettings>['algorithm']): boolean {
  return algorithm?.type === 'grpo' || algorithm?.type === 'ppo';
}
