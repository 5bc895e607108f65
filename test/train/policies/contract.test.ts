/** The contract of policies, on each kind: tokens and images. */
import { FlowPolicy } from '../../../src/train/policies/flow/policy.js';
import type { TokenAnswer, TokenRequest } from '../../../src/train/policies/tokens/batch.js';
import type { Emu3Prompt } from '../../../src/train/policies/tokens/emu3.js';
import type { TokenSampling } from '../../../src/train/policies/tokens/sampling.js';
import { optimizer } from '../../../src/config/schema/training.js';
import { policyContract } from './contract.js';
import { asked, how, smallFlow } from './flow/small_flow.js';
import { tokenPolicy } from './small_lesson.js';
import { openPrompt, smallModel, smallSpace, textPrompt } from './small_policy.js';

type Requested = TokenRequest<Emu3Prompt>;

const space = smallSpace();
const session = { threads: 1 };

const openTokens = () =>
  tokenPolicy(smallModel(space), {
    optimizer: optimizer.parse({ learning_rate: 0.02, per_device_batch_size: 2 }),
    contextSize: 100,
    constrained: true,
    separateVocabularies: true,
  });

const tokens = {
  prompts: [openPrompt(space), textPrompt(space)].map((prompt) => ({ tokens: prompt })),
  how: { temperature: 1, topP: 1, topK: -1, maxTokens: 18, logProbTemperature: 1 },
  learningRate: 0.02,
  tolerance: 1e-4,
};

policyContract<Requested, TokenAnswer, TokenSampling>('tokens, in this process', { ...tokens, open: openTokens });

policyContract('images, in this process', {
  open: () =>
    new FlowPolicy({
      model: smallFlow(),
      optimizer: optimizer.parse({ learning_rate: 0.01, per_device_batch_size: 2 }),
      guidance: null,
      session,
      keepReference: true,
    }),
  prompts: [asked(0), asked(1)],
  how,
  learningRate: 0.01,
  tolerance: 1e-4,
});
