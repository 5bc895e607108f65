/** Opens `toy_words`. */
import { sessionOptions } from '../../../../src/compute/onnx/session.js';
import type { TokenAnswer } from '../../../../src/train/policies/tokens/batch.js';
import { initPolicy } from '../../../../src/train/policies/tokens/load.js';
import { heldOutSampling, samplingOf, type TokenSampling } from '../../../../src/train/policies/tokens/sampling.js';
import { TokenPolicy } from '../../../../src/train/policies/tokens/policy.js';
import type { TrainingContext } from '../../../../src/train/context.js';
import { openTraining } from '../../../../src/recipes/shared/training.js';
import type { OpenRecipe } from '../../../../src/recipes/recipe.js';
import type { Training } from '../../../../src/train/loop.js';
import type { ToyWordsSettings } from './settings.js';
import { ToyWordsTask, type Question } from './task.js';

async function open(settings: ToyWordsSettings, context: TrainingContext): Promise<Training> {
  const { algorithm, optimizer, policy, rollout, seed } = settings;
  const task = new ToyWordsTask(settings);
  return openTraining<Question, TokenAnswer, TokenSampling>(settings, context, {
    task,
    policy: new TokenPolicy({
      model: initPolicy(policy.init, task.format, seed),
      optimizer,
      contextSize: policy.model_context_size,
      constrained: true,
      separateVocabularies: false,
      learner: {
        temperature: rollout.temperature,
        microBatch: optimizer.per_device_batch_size,
        gradientCheckpointing: optimizer.gradient_checkpointing,
      },
      sessions: { sampling: sessionOptions(policy.engine, rollout.threads), learning: sessionOptions(policy.engine) },
      peers: context.group,
      keepReference: true,
    }),
    samplings: heldOutSampling(settings),
    longestAnswer: rollout.max_response_tokens,
    rewards: {
      algorithm,
      how: () => samplingOf(settings),
      trained: (_iteration, _prompt, { ids }) => new Float32Array(ids.length).fill(1),
      mismatchAlarm: 1e-3,
    },
  });
}

export const toyWords: OpenRecipe<ToyWordsSettings> = {
  makeData: async () => {},
  checks: () => [],
  open,
  openTask: async (settings) => new ToyWordsTask(settings),
  sampleRows: async () => [],
};
