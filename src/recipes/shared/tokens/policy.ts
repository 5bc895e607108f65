/** Opens a token policy and its training by GRPO or SFT. */
import { DataError, must } from '../../../core/errors.js';
import { sessionOptions } from '../../../compute/onnx/session.js';
import { modelFolder, type RunResolver } from '../../../models/reference.js';
import type { TokenAnswer, TokenRequest } from '../../../train/policies/tokens/batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';
import type { TokenFormat } from '../../../models/tokenizer/format.js';
import { initPolicy, loadPolicy } from '../../../train/policies/tokens/load.js';
import { heldOutSampling, samplingOf, type TokenSampling } from '../../../train/policies/tokens/sampling.js';
import type { PolicyModel } from '../../../models/adapters/policy_model.js';
import type { LanguagePolicy } from '../../../train/policies/tokens/language_policy.js';
import type { ImageInputs } from '../../../train/policies/tinker/prompts.js';
import { TokenPolicy } from '../../../train/policies/tokens/policy.js';
import type { RewardSettings } from '../../../rewards/schema/reward.js';
import type { GrpoSettings, WordsSftSettings } from '../../../config/schema/algorithm.js';
import type { TrainerSettings } from '../../../config/schema/trainer.js';
import type { TrainedSettings } from '../../../config/schema/run.js';
import type { RolloutSettings, ValidationSettings } from '../../../config/schema/training.js';
import type { Prompt, Task } from '../../../train/scoring/task.js';
import type { TrainingContext } from '../../../train/context.js';
import { openRemoteSampler } from '../../../train/remote/remote_sampler.js';
import { openServedPolicy } from '../../../train/remote/served_trainer.js';
import type { Training } from '../../../train/loop.js';
import { packedWeights } from './settings.js';
import { openTraining, type Labels, type Learning, type RewardParts } from '../training.js';
import { remoteSampling } from './rules.js';
import type { DecoderSettings } from '../../../config/schema/token_policy.js';

/** A larger difference between the log-probabilities of rollout and training graph raises an alarm. */
export const MISMATCH_ALARM = 1e-3;

/** The settings that the policy and its training depend on. */
type TokenTrainingSettings = Omit<TrainedSettings, 'algorithm' | 'validation'> & {
  readonly validation: ValidationSettings & Pick<RewardSettings, 'measure'>;
  readonly algorithm: GrpoSettings | WordsSftSettings;
  readonly rollout: RolloutSettings;
  readonly policy: Omit<DecoderSettings, 'trainer'> & { readonly trainer: TrainerSettings };
  readonly reward: RewardSettings;
};

/** The tokens that a recipe allows its policy to write. */
export interface TokenForms {
  /** Whether sampling only allows tokens that the format permits. */
  readonly constrained: boolean;
  /** Whether a token's distribution covers only its own part of a vocabulary with two parts. */
  readonly separateVocabularies: boolean;
  /** Whether supervised training also keeps its starting weights, as GRPO does. Default: no. */
  readonly keepsStart?: boolean;
}

/** The starting model and inputs of a policy with more parts than a decoder. */
export interface PolicyStart<P extends TokenPrompt = TokenPrompt> {
  /** Opens the model. Not called if a training server has it. */
  readonly model?: () => PolicyModel<P>;
  /** How the policy reads images. Absent for a policy without images. */
  readonly imageInputs?: ImageInputs;
}

/**
 * Opens the starting policy with the trainer in the settings. Raises the errors of reading its model and reaching its
 * trainer.
 */
export async function openTrainedPolicy<P extends TokenPrompt>(
  settings: TokenTrainingSettings,
  format: TokenFormat<P>,
  context: TrainingContext,
  forms: TokenForms,
  start?: PolicyStart<P>,
): Promise<LanguagePolicy<P>> {
  const { trainer } = settings.policy;
  if (trainer.type === 'tinker') {
    return openServedPolicy(settings, trainer, format, start?.imageInputs ?? null, context);
  }
  const policy = openTokenPolicy(settings, format, context, forms, start?.model?.());
  const sampled = remoteSampling(settings);
  if (sampled !== null) policy.sampleRemotely(await openRemoteSampler(settings, context, sampled, policy));
  return policy;
}

/** Opens the policy that this process trains, from the referenced model or with random weights. */
export function openTokenPolicy<P extends TokenPrompt>(
  settings: TokenTrainingSettings,
  format: TokenFormat<P>,
  { group, resolveRun }: Pick<TrainingContext, 'group' | 'resolveRun'>,
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
    // Supervised training uses the whole vocabulary at temperature 1, like language models.
    separateVocabularies: !supervised && separateVocabularies,
    learner: {
      temperature: supervised ? 1 : rollout.temperature,
      microBatch: optimizer.per_device_batch_size,
      gradientCheckpointing: optimizer.gradient_checkpointing,
    },
    packed: packedWeights(settings),
    sessions: { sampling: sessionOptions(policy.engine, rollout.threads), learning: sessionOptions(policy.engine) },
    peers: group,
    keepReference: !supervised || keepsStart,
  });
}

/** Raises the CheckpointErrors and ConfigErrors of `loadPolicy`. */
export function startingModel<P extends TokenPrompt>(
  { policy, seed }: Pick<TokenTrainingSettings, 'policy' | 'seed'>,
  format: TokenFormat<P>,
  resolveRun: RunResolver,
): PolicyModel<P> {
  if (policy.model !== null) {
    const fresh = policy.lora === null ? null : { lora: policy.lora, seed };
    return loadPolicy(modelFolder(policy.model, resolveRun), format, fresh, null, policy.engine.dtype);
  }
  if (policy.init === null) throw new DataError('policy.model and policy.init are both null');
  return initPolicy(policy.init, format, seed);
}

/**
 * Training of a token policy. `trained` selects the tokens of an answer that carry the loss when learning from rewards.
 * Default: all.
 */
export async function openTokenTraining<P extends Prompt & TokenRequest<T>, T extends TokenPrompt>(
  settings: TokenTrainingSettings,
  context: TrainingContext,
  {
    labels,
    trained = (_iteration, _prompt, { ids }) => new Float32Array(ids.length).fill(1),
    ...parts
  }: {
    readonly task: Task<P, TokenAnswer>;
    readonly policy: LanguagePolicy<T>;
    /** Null for a run that learns from rewards. */
    readonly labels: Labels<P, TokenAnswer> | null;
    readonly trained?: RewardParts<P, TokenAnswer, TokenSampling>['trained'];
    /** Whether its answers are scored. Default: yes. */
    readonly isScored?: boolean;
  },
): Promise<Training> {
  const { rollout, algorithm } = settings;
  const learning: Learning<P, TokenAnswer, TokenSampling> =
    algorithm.type === 'sft'
      ? { labels: must(labels, 'labels of a supervised run') }
      : {
          rewards: {
            algorithm,
            how: () => samplingOf(settings),
            trained,
            mismatchAlarm: MISMATCH_ALARM,
            importanceCap: rollout.engine === null && rollout.ahead === 0 ? null : rollout.importance_cap,
            ...(rollout.ahead === 0 ? {} : { aheadUntil: settings.num_iterations }),
          },
        };
  return openTraining<P, TokenAnswer, TokenSampling>(settings, context, {
    ...parts,
    ...learning,
    samplings: heldOutSampling(settings),
    longestAnswer: rollout.max_response_tokens,
  });
}
