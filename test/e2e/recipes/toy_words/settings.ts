/** The recipe `toy_words`: a small decoder says in words which of some numbers are odd or even, and learns it by GRPO. */
import { z } from 'zod';
import { decoderActivations, decoderParameters, trainingBytes } from '../../../../src/recipes/shared/memory.js';
import { policyRules } from '../../../../src/recipes/shared/tokens/rules.js';
import { preset } from '../../../../src/recipes/recipe.js';
import { rewardRules } from '../../../../src/recipes/shared/rules/reward.js';
import { groupRules, sharedRules, wholeBatches } from '../../../../src/recipes/shared/rules/training.js';
import { reward } from '../../../../src/rewards/schema/reward.js';
import { grpo } from '../../../../src/config/schema/algorithm.js';
import { positiveInteger, result, section } from '../../../../src/core/schema/mark.js';
import { decoderInit, engine } from '../../../../src/config/schema/model.js';
import { taskField, trainedFields } from '../../../../src/config/schema/run.js';
import { rollout } from '../../../../src/config/schema/training.js';

const schema = z.strictObject({
  ...trainedFields,
  ...taskField('toy_words'),
  algorithm: section('How the policy learns.', grpo),
  rollout,
  policy: section(
    'The decoder.',
    z.strictObject({
      init: decoderInit,
      model_context_size: result('Longest sequence of prompt and answer, in tokens.', positiveInteger.default(64)),
      engine,
    }),
  ),
  questions: section(
    'What is asked.',
    z.strictObject({
      largest: result('The largest number that is asked about.', z.int().min(2).max(9).default(6)),
      held_out: result('How many questions are held out.', positiveInteger.default(16)),
    }),
  ).prefault({}),
  reward,
});
export type ToyWordsSettings = z.output<typeof schema>;

export const toyWords = preset<ToyWordsSettings>({
  name: 'toy_words',
  schema,
  pipeline: null,
  usedAt: { key: 'policy.model', of: 'toy_words' },
  parts: [
    {
      rules: [...groupRules, wholeBatches, ...sharedRules, ...policyRules, ...rewardRules],
      learns: {
        engine: 'policy.engine',
        start: null,
        parameters: ({ policy }) => decoderParameters(policy.init),
        memory: ({ policy, optimizer }) => {
          const activations = decoderActivations(policy.init, {
            prompts: optimizer.per_device_batch_size,
            answersPerPrompt: 1,
            promptTokens: 0,
            answerTokens: policy.model_context_size,
            gradientCheckpointing: false,
          });
          return trainingBytes(decoderParameters(policy.init), activations, optimizer.ema_decay === null ? 1 : 2);
        },
        shape: ({ policy }) => policy.init,
        rows: ({ rollout }) => rollout.episodes_per_iteration,
      },
    },
  ],
});
