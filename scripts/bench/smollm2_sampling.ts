/**
 * The sampling parts of the bench: 16 answers to two prompts of 43 tokens, compared with `generate` of transformers. If all weights
 * train, also compares steps that get the weights as inputs with steps on packed weights, which are packed in every turn.
 */
import { fileURLToPath } from 'node:url';
import { RandomStream } from '../../src/core/random.js';
import { halvesIn } from '../../src/core/half.js';
import type { StorageDtype } from '../../src/core/safetensors.js';
import { adapt, openModel } from '../../src/models/adapters/decoder.js';
import { unrestricted, type TokenFormat } from '../../src/models/tokenizer/format.js';
import { Sampler } from '../../src/train/policies/tokens/rollout.js';
import { missingInPython, type BesidePython } from './python.js';
import { gradientTurns } from './smollm2_gradient.js';
import { answerTurns, race, TurnTaker } from './turns.js';

const ANSWERS_PER_PROMPT = 8;
const PROMPT_TOKENS = 43;

/** Token ids of prompts. Their content does not affect the time. */
const promptIds = (prompts: number): number[][] =>
  Array.from({ length: prompts }, (_, p) =>
    Array.from({ length: PROMPT_TOKENS }, (_, i) => 100 + ((i * 37 + p * 11) % 40_000)),
  );

/** The options of an editrl process that samples. */
interface Sampled {
  readonly model: string;
  /** Whether adapters train, or all weights. */
  readonly adapted: boolean;
  readonly packed: 'all' | 'none';
  /** Default: 'float32'. */
  readonly held?: StorageDtype;
  readonly prompts: number;
  readonly threads: number;
  readonly tokens: number;
}

function ourTurns(name: string, sampled: Sampled): TurnTaker {
  return new TurnTaker(name, process.execPath, [fileURLToPath(import.meta.url), JSON.stringify(sampled)]);
}

export async function raceSampling({ model, python, rounds, threads, tokens }: BesidePython): Promise<void> {
  const prompts = 2;
  const asked = JSON.stringify({
    prompts: promptIds(prompts),
    answers_per_prompt: ANSWERS_PER_PROMPT,
    answer_tokens: tokens,
    threads,
  });
  const ours = ourTurns('editrl, LoRA', { model, adapted: true, packed: 'all', prompts, threads, tokens });
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
    `\nsampling ${prompts * ANSWERS_PER_PROMPT} answers of ${tokens} tokens, ${threads} threads, medians of ${rounds}:`,
  );
  try {
    await race([ours, ...theirs], rounds);
  } finally {
    for (const taker of [ours, ...theirs]) taker.close();
  }
}

export async function racePacking({ model, rounds, threads, tokens }: BesidePython): Promise<void> {
  const works = [
    { adapted: false, prompts: 2, length: tokens },
    { adapted: false, prompts: 8, length: Math.ceil((3 * tokens) / 8) },
    { adapted: true, prompts: 2, length: tokens },
  ];
  for (const { adapted, prompts, length } of works) {
    const of = { model, adapted, prompts, threads, tokens: length };
    const takers = [
      ourTurns("packed: 'none'", { ...of, packed: 'none' }),
      ourTurns("packed: 'all'", { ...of, packed: 'all' }),
    ] as const;
    console.log(
      `\nsampling ${prompts * ANSWERS_PER_PROMPT} answers of ${length} tokens, ${adapted ? 'LoRA' : 'all weights train'}, ${threads} threads, medians of ${rounds}:`,
    );
    try {
      await race(takers, rounds);
    } finally {
      for (const taker of takers) taker.close();
    }
  }
}

/** The forms of frozen weights: sampling and the gradient of an adapter with each. */
export async function raceHeld({ model, rounds, threads, tokens }: BesidePython): Promise<void> {
  const of = { model, adapted: true, prompts: 2, threads, tokens };
  const sampling = [
    ourTurns("packed: 'all'", { ...of, packed: 'all' }),
    ourTurns("packed: 'none'", { ...of, packed: 'none' }),
    ourTurns('held in float16', { ...of, packed: 'none', held: 'float16' }),
  ] as const;
  const gradients = [
    gradientTurns('float32', [model, 'lora', threads]),
    gradientTurns('float16', [model, 'half', threads]),
  ] as const;
  const answers = of.prompts * ANSWERS_PER_PROMPT;
  for (const [title, takers] of [
    [`sampling ${answers} answers of ${tokens} tokens`, sampling],
    [`gradient of LoRA, ${answers} answers`, gradients],
  ] as const) {
    console.log(`\n${title}, ${threads} threads, medians of ${rounds}:`);
    try {
      await race(takers, rounds);
    } finally {
      for (const taker of takers) taker.close();
    }
  }
}

/** Samples once for each line of the input. */
async function sampleInTurns({
  model,
  adapted,
  packed,
  held,
  prompts,
  threads,
  tokens: maxTokens,
}: Sampled): Promise<void> {
  const opened = openModel(model, 'words', held);
  const lora = { rank: 16, alpha: 32, rslora: false, targets: 'all-linear' };
  const { config, weights } = adapted ? adapt(opened.config, opened.weights, lora, { seed: 1 }) : opened;
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
    {
      contextSize: 2048,
      constrained: true,
      separateVocabularies: false,
      session: { threads, halves: halvesIn(weights) },
      packed,
    },
  );
  const asked = promptIds(prompts).map((ids) => ({ tokens: { ids } }));
  let turn = 0;
  await answerTurns(async () => {
    await sampler.sample(
      {
        prompts: asked,
        among: asked,
        answersPerPrompt: ANSWERS_PER_PROMPT,
        how: { maxTokens, temperature: 1, topP: 1, topK: -1, logProbTemperature: 1 },
        weights: 'current',
        random: (p, g) => new RandomStream(1, p, g),
      },
      weights,
      // Every turn counts as an iteration.
      String(turn++),
    );
  });
  await sampler.dispose();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await sampleInTurns(JSON.parse(process.argv[2] ?? '') as Sampled);
}
