/** This program's side of `smollm2_gradient`: measures once for every line of its input. */
import { RandomStream } from '../../src/core/random.js';
import type { HeldDtype } from '../../src/core/safetensors.js';
import { TrainedWeights } from '../../src/engines/onnx/trained_weights.js';
import { soloPeers } from '../../src/group/peers.js';
import { adapt } from '../../src/policies/tokens/adapter.js';
import { Learner, type TokenLesson } from '../../src/policies/tokens/learner.js';
import { halfWeights } from '../../src/policies/tokens/model.js';
import { unrestricted } from '../../src/policies/tokens/format.js';
import { openDecoder } from '../../src/nets/decoder/files.js';
import type { Work } from './smollm2_gradient.js';
import { answerTurns } from './turns.js';

const [folder, work, threads] = process.argv.slice(2) as [string, Work, string];
const [prompts, answers, promptTokens, answerTokens] = [2, 8, 43, 64];

/** The measurements by name: each reads the model, and returns the function that is timed. */
const works: Readonly<Record<Work, () => () => Promise<void>>> = {
  lora: () => gradient(true),
  half: () => gradient(true, 'float16'),
  all: () => gradient(false),
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

function gradient(adapted: boolean, held: HeldDtype = 'float32'): () => Promise<void> {
  const opened = openDecoder(folder, 'words', held);
  const lora = { rank: 16, alpha: 32, rslora: false, targets: 'all-linear' };
  const { config, weights } = adapted ? adapt(opened.config, opened.weights, lora, { seed: 1 }) : opened;
  const format = {
    size: config.vocab_size,
    ends: new Set([2]),
    secondPart: null,
    tokenizerFiles: {},
    start: () => unrestricted,
  };
  const learner = new Learner(
    { config, weights, format },
    {
      temperature: 1,
      separateVocabularies: false,
      microBatch: prompts * answers,
      gradientCheckpointing: false,
      session: { threads: Number(threads), halves: halfWeights({ weights }) },
      peers: soloPeers,
    },
  );
  const stream = new RandomStream('bench');
  const tokens = (length: number): number[] => Array.from({ length }, () => 100 + stream.integer(39_900));
  const lessons = Array.from({ length: prompts }, (): TokenLesson => ({
    prompt: { tokens: { ids: tokens(promptTokens) } },
    answers: Array.from({ length: answers }, () => ({ ids: Int32Array.from(tokens(answerTokens)) })),
    targets: Array.from({ length: answers }, () => ({
      weights: new Float32Array(answerTokens).fill(1 / (prompts * answers * answerTokens)),
      advantages: stream.normal(),
      reference: null,
      old: null,
    })),
  }));
  return async () => {
    await learner.learn(lessons, { policy: 'reinforce', kl: null });
    await learner.gradients();
  };
}

await answerTurns(works[work]());
