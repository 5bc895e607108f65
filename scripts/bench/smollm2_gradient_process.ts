/** This program's side of `smollm2_gradient`: measures once for every line of its input. */
import { RandomStream } from '../../src/core/random.js';
import { halvesIn } from '../../src/core/half.js';
import type { StorageDtype } from '../../src/core/safetensors.js';
import { TrainedWeights } from '../../src/models/trained_weights.js';
import { soloPeers } from '../../src/core/group/peers.js';
import { adapt } from '../../src/models/adapters/decoder.js';
import { Learner } from '../../src/train/policies/tokens/learner.js';
import { openDecoder } from '../../src/models/networks/decoder.js';
import { plainFormat, randomLessons } from './lessons.js';
import type { Work } from './smollm2_gradient.js';
import { answerTurns } from './turns.js';

const [folder, work, threads] = process.argv.slice(2) as [string, Work, string];
const [prompts, answers] = [2, 8];
/** The sizes of a batch: tokens of every prompt, and of answer `i` of all. */
interface Sizes {
  readonly prompt: number;
  readonly answer: (i: number) => number;
}
const equal: Sizes = { prompt: 43, answer: () => 64 };
/** From 4 to 24, 14.1 in the mean. */
const many: Sizes = { prompt: 90, answer: (i) => 4 + ((8 * i) % 21) };

/** The measurements by name: each reads the model, and returns the function that is timed. */
const works: Readonly<Record<Work, () => () => Promise<void>>> = {
  lora: () => gradient(true),
  half: () => gradient(true, 'float16'),
  all: () => gradient(false),
  lora_shared: () => gradient(true, 'float32', many),
  all_shared: () => gradient(false, 'float32', many),
  adamw: () => {
    const size = 1_228_800;
    const tensors = Array.from({ length: Math.round(134_515_008 / size) }, (_, i) => `w${i}`);
    const filled = (value: number): Float32Array => new Float32Array(size).fill(value);
    const weights = new Map(tensors.map((name, i) => [name, { shape: [size], data: filled(0.01 * i) }]));
    const settings = { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0, max_grad_norm: 1, ema_decay: null };
    const trained = new TrainedWeights(weights, settings as unknown as ConstructorParameters<typeof TrainedWeights>[1]);
    const gradients = new Map(tensors.map((name, i) => [name, filled(1 + 0.01 * i)]));
    return () => Promise.resolve(void trained.step(gradients, 1e-4));
  },
};

function gradient(adapted: boolean, held: StorageDtype = 'float32', sizes = equal): () => Promise<void> {
  const opened = openDecoder(folder, 'words', held);
  const lora = { rank: 16, alpha: 32, rslora: false, targets: 'all-linear' };
  const { config, weights } = adapted ? adapt(opened.config, opened.weights, lora, { seed: 1 }) : opened;
  const format = plainFormat(config.vocab_size);
  const learner = new Learner(
    { config, weights, format },
    {
      temperature: 1,
      separateVocabularies: false,
      microBatch: prompts * answers,
      gradientCheckpointing: false,
      session: { threads: Number(threads), halves: halvesIn(weights) },
      peers: soloPeers,
    },
  );
  const lessons = randomLessons(new RandomStream('bench'), {
    prompts,
    answers,
    promptTokens: sizes.prompt,
    answerTokens: sizes.answer,
    tokens: [100, 40_000],
  });
  return async () => {
    await learner.learn(lessons, { policy: 'reinforce', kl: null });
    await learner.gradients();
  };
}

await answerTurns(works[work]());
