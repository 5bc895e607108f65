/** Opens `toy_words`. */
import { sessionOptions } from '../../../../src/compute/onnx/session.js';
import type { TokenAnswer } from '../../../../src/train/policies/tokens/batch.js';
import { initPolicy } from '../../../../src/train/policies/tokens/load.js';
import { heldOutSampling, samplingOf, type TokenSampling } from '../../../../src/train/policies/tokens/sampling.js';
import { TokenPolicy } from '../../../../src/train/policies/tokens/policy.js';
import { openScorer } from '../../../../src/train/scoring/judge_scorer.js';
import { openGrpo, openHeldOut, type TrainingContext } from '../../../../src/train/context.js';
import type { OpenRecipe } from '../../../../src/recipes/recipe.js';
import type { Collector } from '../../../../src/train/batch.js';
import type { Training } from '../../../../src/train/loop.js';
import { scheduleOf } from '../../../../src/train/update.js';
import type { ToyWordsSettings } from './settings.js';
import { ToyWordsTask, type Question } from './task.js';

async function open(settings: ToyWordsSettings, context: TrainingContext): Promise<Training> {
  const { optimizer, policy, rollout, seed } = settings;
  const { group } = context;
  const task = new ToyWordsTask(settings);
  const collector: Collector<Question, TokenAnswer, TokenSampling> = {
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
      peers: group,
      keepReference: true,
    }),
    scorer: await openScorer(settings, context, context.judge),
    group,
  };
  return openGrpo(settings, context, {
    ...collector,
    heldOut: openHeldOut(settings, context, collector, heldOutSampling(settings), rollout.max_response_tokens),
    how: () => samplingOf(settings),
    longestAnswer: rollout.max_response_tokens,
    schedule: scheduleOf(settings),
    trained: (_iteration, _prompt, { ids }) => new Float32Array(ids.length).fill(1),
    mismatchAlarm: 1e-3,
  });
}

export const toyWords: OpenRecipe<ToyWordsSettings> = {
  makeData: async () => {},
  checks: () => [],
  open,
  openTask: async (settings) => new ToyWordsTask(settings),
  sampleRows: async () => [],
};
