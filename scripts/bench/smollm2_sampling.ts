/** The part of the bench that samples: 16 answers to two prompts of 43 tokens, beside `generate` of transformers. */
import { fileURLToPath } from 'node:url';
import { RandomStream } from '../../src/core/random.js';
import { adapt, openModel } from '../../src/policies/tokens/adapter.js';
import { unrestricted, type TokenFormat } from '../../src/policies/tokens/format.js';
import { Sampler } from '../../src/policies/tokens/rollout.js';
import { missingInPython, type BesidePython } from './python.js';
import { answerTurns, race, TurnTaker } from './turns.js';

const PROMPTS = 2;
const ANSWERS_PER_PROMPT = 8;
const PROMPT_TOKENS = 43;

/** Ids of prompts; what they say does not matter to the time. */
const promptIds = Array.from({ length: PROMPTS }, (_, p) =>
  Array.from({ length: PROMPT_TOKENS }, (_, i) => 100 + ((i * 37 + p * 11) % 40_000)),
);

export async function raceSampling({ model, python, rounds, threads, tokens }: BesidePython): Promise<void> {
  const asked = JSON.stringify({
    prompts: promptIds,
    answers_per_prompt: ANSWERS_PER_PROMPT,
    answer_tokens: tokens,
    threads,
  });
  const ours = new TurnTaker('editrl, LoRA', process.execPath, [
    fileURLToPath(import.meta.url),
    model,
    String(threads),
    String(tokens),
  ]);
  const theirs = (['plain', 'lora'] as const).flatMap((kind) => {
    const missing = missingInPython(
      python,
      kind === 'lora' ? ['torch', 'transformers', 'peft'] : ['torch', 'transformers'],
    );
    if (missing === null) {
      const name = kind === 'lora' ? 'generate, LoRA by peft' : 'generate, no adapter';
      return new TurnTaker(name, python, ['scripts/bench/smollm2_sampling.py', model, kind, asked]);
    }
    console.log(`  generate (${kind}) is left out: ${missing}`);
    return [];
  });
  console.log(
    `\nsampling ${PROMPTS * ANSWERS_PER_PROMPT} answers of ${tokens} tokens, ${threads} threads, medians of ${rounds}:`,
  );
  try {
    await race([ours, ...theirs], rounds);
  } finally {
    for (const taker of [ours, ...theirs]) taker.close();
  }
}

/** One turn of ours. */
async function sampleInTurns(folder: string, threads: number, maxTokens: number): Promise<void> {
  const opened = openModel(folder);
  const lora = { rank: 16, alpha: 32, rslora: false, targets: 'all-linear' };
  const { config, weights } = adapt(opened.config, opened.weights, lora, { seed: 1 });
  const format: TokenFormat = {
    size: config.vocab_size,
    // No answer ends early.
    ends: new Set(),
    secondPart: null,
    tokenizerFiles: {},
    start: () => unrestricted,
  };
  const sampler = new Sampler(
    { config, weights, format },
    { contextSize: 2048, constrained: true, separateVocabularies: false, session: { threads } },
  );
  const prompts = promptIds.map((ids) => ({ tokens: { ids } }));
  await answerTurns(async () => {
    await sampler.sample(
      {
        prompts,
        among: prompts,
        answersPerPrompt: ANSWERS_PER_PROMPT,
        how: { maxTokens, temperature: 1, topP: 1, topK: -1, logProbTemperature: 1 },
        weights: 'current',
        random: (p, g) => new RandomStream(1, p, g),
      },
      weights,
    );
  });
  await sampler.dispose();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [folder = '', threads, tokens] = process.argv.slice(2);
  await sampleInTurns(folder, Number(threads), Number(tokens));
}
