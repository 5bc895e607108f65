/** Computes the gradient of one micro-batch three times, and prints the peak of this process's resident memory in bytes. */
import { RandomStream } from '../../src/core/random.js';
import { soloPeers } from '../../src/group/peers.js';
import { initDecoder } from '../../src/nets/decoder/config.js';
import { Learner } from '../../src/policies/tokens/learner.js';
import { plainFormat, randomLessons } from './lessons.js';
import { shape, type Measured } from './memory.js';

const { prompts, answersPerPrompt, promptTokens, answerTokens, gradientCheckpointing } = JSON.parse(
  process.argv[2],
) as Measured;
const config = { ...shape, rope_theta: 10_000, rms_norm_eps: 1e-6, attention_bias: false };
const weights = initDecoder(config, { embedding_std: 0.5, initializer_range: null }, 1);
const format = plainFormat(config.vocab_size);
const learner = new Learner(
  { config, weights, format },
  {
    temperature: 1,
    separateVocabularies: false,
    microBatch: prompts * answersPerPrompt,
    gradientCheckpointing,
    session: { threads: 1 },
    peers: soloPeers,
  },
);
const lessons = randomLessons(new RandomStream('bench'), {
  prompts,
  answers: answersPerPrompt,
  // The last token of a prompt is counted with the answers.
  promptTokens: promptTokens + 1,
  answerTokens: () => answerTokens,
  tokens: [0, config.vocab_size],
});
for (let round = 0; round < 3; round++) {
  await learner.learn(lessons, { policy: 'reinforce', kl: null });
  await learner.gradients();
}
// The unit differs between Linux and macOS, but `resourceUsage` gives kilobytes on both.
console.log(process.resourceUsage().maxRSS * 1024);
