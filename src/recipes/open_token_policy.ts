/** Opens what recipes share whose policy is a decoder that writes tokens: the policy itself, and its training by GRPO or by SFT. */
import { DataError, InternalError } from '../core/errors.js';
import { sessionOptions } from '../engines/onnx/session_options.js';
import { modelFolder, type RunResolver } from '../models/reference.js';
import type { TokenAnswer, TokenAsked, TokenPrompt } from '../policies/tokens/batch.js';
import type { TokenFormat } from '../policies/tokens/format.js';
import { initPolicy, loadPolicy } from '../policies/tokens/load.js';
import { manners, samplingOf } from '../policies/tokens/manners.js';
import type { PolicyModel } from '../policies/tokens/model.js';
import { TokenPolicy } from '../policies/tokens/policy.js';
import type { TokenSampling } from '../policies/tokens/rollout.js';
import { measuredReward, type RewardSettings } from '../rewards/schema/reward.js';
import { asksJudge } from '../rewards/score/choice.js';
import type { GrpoSettings, WordsSftSettings } from '../schema/algorithm.js';
import type { TrainedSettings } from '../schema/run.js';
import type { RolloutSettings, ValidationSettings } from '../schema/training.js';
import { openScorer } from '../scoring/judge_scorer.js';
import type { Prompt, Task } from '../scoring/task.js';
import { openGrpo, openHeldOut, type Bench, type GrpoParts } from '../train/bench.js';
import type { Collector } from '../train/collect.js';
import { openSamplerElsewhere } from '../train/elsewhere.js';
import type { Training } from '../train/loop.js';
import { scheduleOf } from '../train/schedule.js';
import { SupervisedTraining, type Labelled } from '../train/supervised.js';
import { samplerElsewhere } from './sampler.js';
import { packsAll, type DecoderSettings } from './token_policy.js';

/** Above this difference between the log-probabilities of rollout and training graph an alarm is raised. */
const MISMATCH_ALARM = 1e-3;

/** Of a recipe's settings what its policy and training follow. */
type TokenTrainingSettings = Omit<TrainedSettings, 'algorithm' | 'validation'> & {
  readonly validation: ValidationSettings & Pick<RewardSettings, 'measure'>;
  readonly algorithm: GrpoSettings | WordsSftSettings;
  readonly rollout: RolloutSettings;
  readonly policy: DecoderSettings;
  readonly reward: RewardSettings;
};

/** What a recipe lets its policy write. */
export interface TokenForms {
  /** Whether only tokens are sampled that the format allows. */
  readonly constrained: boolean;
  /** Whether a token's distribution is over its own part of the vocabulary alone, where there are two. */
  readonly separateVocabularies: boolean;
  /** Whether supervised training, too, keeps the weights that it starts from, as GRPO does; absent: no. */
  readonly keepsStart?: boolean;
}

/** The policy that training starts from: the referenced model, or random weights. */
export function openTokenPolicy<P extends TokenPrompt>(
  settings: TokenTrainingSettings,
  format: TokenFormat<P>,
  { group, resolveRun }: Pick<Bench, 'group' | 'resolveRun'>,
  { constrained, separateVocabularies, keepsStart = false }: TokenForms,
  model = startingModel(settings, format, resolveRun),
): TokenPolicy<P> {
  const { policy, optimizer, rollout, algorithm } = settings;
  const supervised = algorithm.type === 'sft';
  return new TokenPolicy({
    model,
    optimizer,
    contextSize: policy.model_context_size,
    constrained,
    // Labels are learnt as language models learn them: over the whole vocabulary, untempered.
    separateVocabularies: !supervised && separateVocabularies,
    learner: {
      temperature: supervised ? 1 : rollout.temperature,
      microBatch: optimizer.per_device_batch_size,
      gradientCheckpointing: optimizer.gradient_checkpointing,
    },
    packed: packsAll(settings) ? 'all' : 'frozen',
    sessions: { sampling: sessionOptions(policy.engine, rollout.threads), learning: sessionOptions(policy.engine) },
    peers: group,
    keepReference: !supervised || keepsStart,
  });
}

/** Raises CheckpointError and ConfigError as `loadPolicy` does. */
export function startingModel<P extends TokenPrompt>(
  { policy, seed }: Pick<TokenTrainingSettings, 'policy' | 'seed'>,
  format: TokenFormat<P>,
  resolveRun: RunResolver,
): PolicyModel<P> {
  if (policy.model !== null) {
    const fresh = policy.lora === null ? null : { lora: policy.lora, seed };
    return loadPolicy(modelFolder(policy.model, resolveRun), format, fresh);
  }
  if (policy.init === null) throw new DataError('policy.model and policy.init are both null');
  return initPolicy(policy.init, format, seed);
}

/** What a recipe trains with. */
export interface TokenTraining<P extends Prompt & TokenAsked<T>, T extends TokenPrompt> {
  readonly task: Task<P, TokenAnswer>;
  readonly policy: TokenPolicy<T>;
  /** For supervised training: the batch of an iteration, and what the held-out loss is taken over. */
  readonly batch: (iteration: number) => Promise<readonly Labelled<P, TokenAnswer>[]>;
  readonly heldOutBatch: () => Promise<readonly Labelled<P, TokenAnswer>[]>;
  /** For GRPO: which tokens of an answer carry the loss. */
  readonly trained: GrpoParts<P, TokenAnswer, TokenSampling>['trained'];
  /** Whether anything scores its answers; absent: yes. */
  readonly isScored?: boolean;
}

/** Training by the algorithm of the settings, with its scorer and its held-out evaluation. */
export async function openTokenTraining<P extends Prompt & TokenAsked<T>, T extends TokenPrompt>(
  settings: TokenTrainingSettings,
  bench: Bench,
  { task, policy, batch, heldOutBatch, trained, isScored = true }: TokenTraining<P, T>,
): Promise<Training> {
  const { algorithm } = settings;
  const { group, judge } = bench;
  const reward = measuredReward(settings);
  const sampled = samplerElsewhere(settings);
  if (sampled !== null) policy.sampleElsewhere(await openSamplerElsewhere(settings, bench, sampled, policy));
  const schedule = scheduleOf(settings);
  // A supervised run without a judge reports losses only; GRPO cannot do without a reward.
  const scores = isScored && (algorithm.type !== 'sft' || judge !== null || !asksJudge(reward));
  const longestAnswer = settings.rollout.max_response_tokens;
  const scorer = scores ? await openScorer({ ...settings, reward }, bench, judge) : null;
  const collector: Collector<P, TokenAnswer, TokenSampling> | null =
    scorer === null ? null : { task, policy, scorer, group };
  const heldOut = collector === null ? null : openHeldOut(settings, bench, collector, manners(settings), longestAnswer);
  if (algorithm.type === 'sft') {
    return new SupervisedTraining<P, TokenAnswer, TokenSampling>({
      policy,
      schedule,
      sft: algorithm.sft,
      batch,
      heldOutBatch,
      heldOut,
      dispose: async () => {
        if (heldOut !== null) return heldOut.dispose();
        await policy.dispose();
        await task.dispose();
      },
    });
  }
  if (collector === null || heldOut === null) throw new InternalError('GRPO without a reward');
  return openGrpo({ ...settings, algorithm }, bench, {
    ...collector,
    heldOut,
    how: samplingOf(settings),
    longestAnswer,
    schedule,
    trained,
    mismatchAlarm: MISMATCH_ALARM,
    importanceCap: settings.rollout.engine === null ? null : settings.rollout.importance_cap,
  });
}
