/** An iteration of flow-GRPO on a small image editor, here and as a loop of torch and diffusers over a model of the same size, in turns. */
import { fileURLToPath } from 'node:url';
import { missingInPython } from './python.js';
import { race, TurnTaker } from './turns.js';

/** The editor of the laptop size: its images, its text and its transformer. */
export const EDIT = {
  prompts: 16,
  answers: 16,
  /** Images of a micro-batch. */
  batch: 64,
  steps: 6,
  /** Steps with noise, which are learned from. */
  noisy: 2,
  /** Tokens on a side of an image, and numbers of a token. */
  rows: 4,
  channels: 192,
  textTokens: 8,
  textWidth: 64,
  pooled: 32,
  layers: 3,
  heads: 4,
  depth: 24,
} as const;

export async function raceIterations(python: string, rounds: number, threads: number): Promise<void> {
  const program = fileURLToPath(new URL('flow_process.js', import.meta.url));
  const ours = new TurnTaker('editrl', process.execPath, [program, String(threads)]);
  const missing = missingInPython(python, ['torch', 'diffusers']);
  if (missing !== null) console.log(`  torch is left out: ${missing}`);
  const loop = ['scripts/bench/flow_iteration.py', JSON.stringify(EDIT), String(threads)];
  const theirs = missing === null ? [new TurnTaker('torch and diffusers', python, loop)] : [];
  const { prompts, answers, steps, noisy } = EDIT;
  console.log(
    `an iteration of flow-GRPO: ${prompts * answers} images in ${steps} steps, ${noisy} of them learned from, ${threads} threads, medians of ${rounds}:`,
  );
  try {
    await race([ours, ...theirs], rounds);
  } finally {
    for (const taker of [ours, ...theirs]) taker.close();
  }
}
