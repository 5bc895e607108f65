/** The training parts of the bench: the gradient of a micro-batch compared with torch and peft, and an optimizer step over as many weights. */
import { fileURLToPath } from 'node:url';
import { missingInPython, type BesidePython } from './python.js';
import { race, TurnTaker } from './turns.js';

/** The measurements, and the packages that Python needs for each. */
const WORKS = {
  lora: {
    title: 'gradient of LoRA r 16 on all linear layers, 16 answers',
    packages: ['torch', 'transformers', 'peft'],
  },
  all: { title: 'gradient of all weights, 16 answers', packages: ['torch', 'transformers'] },
  lora_shared: {
    title:
      'gradient of LoRA r 16, 16 answers of 4 to 24 tokens, 8 to each of 2 prompts of 90, which are computed once on both sides',
    packages: ['torch', 'transformers', 'peft'],
  },
  all_shared: { title: 'the same of all weights', packages: ['torch', 'transformers'] },
  adamw: { title: 'clipping and AdamW over 134 M parameters', packages: ['torch'] },
} as const;
/** `half`: as `lora`, with frozen weights held in float16. */
export type Work = keyof typeof WORKS | 'half';

/** This program's process for a work of a model: its folder, the work, threads. */
export function gradientTurns(name: string, [model, work, threads]: readonly [string, Work, number]): TurnTaker {
  const program = fileURLToPath(new URL('smollm2_gradient_process.js', import.meta.url));
  return new TurnTaker(name, process.execPath, [program, model, work, String(threads)]);
}

export async function raceLearning({ model, python, rounds, threads }: BesidePython): Promise<void> {
  for (const [work, { title, packages }] of Object.entries(WORKS)) {
    const given = [model, work, String(threads)];
    const ours = gradientTurns('editrl', [model, work as Work, threads]);
    const missing = missingInPython(python, packages);
    if (missing !== null) console.log(`  torch is left out: ${missing}`);
    const theirs =
      missing === null ? [new TurnTaker('torch', python, ['scripts/bench/peft_gradient.py', ...given])] : [];
    console.log(`\n${title}, ${threads} threads, medians of ${rounds}:`);
    try {
      await race([ours, ...theirs], rounds);
    } finally {
      for (const taker of [ours, ...theirs]) taker.close();
    }
  }
}
