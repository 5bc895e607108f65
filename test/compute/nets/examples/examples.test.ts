import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { expect, it } from 'vitest';
import { decoderLogits } from './decoder_logits.js';
import { loraStep } from './lora_step.js';
import { mlp } from './mlp.js';
import { scalarGradient } from './scalar_gradient.js';

const folder = fileURLToPath(new URL('../decoder/fixtures/qwen2', import.meta.url));
const { ids, logits } = JSON.parse(readFileSync(join(folder, 'expected.json'), 'utf8')) as {
  readonly ids: readonly (readonly number[])[];
  readonly logits: readonly (readonly (readonly number[])[])[];
};
const [prompt, answer] = [ids[0].slice(0, 15), ids[0].slice(15)];

it('differentiates a scalar function twice', async () => {
  const x = 0.7;
  const { y, dy, ddy } = await scalarGradient(x);
  expect(y).toBeCloseTo(x ** 2 * Math.sin(x), 6);
  expect(dy).toBeCloseTo(2 * x * Math.sin(x) + x ** 2 * Math.cos(x), 6);
  expect(ddy).toBeCloseTo(2 * Math.sin(x) + 4 * x * Math.cos(x) - x ** 2 * Math.sin(x), 5);
});

it('learns XOR', async () => {
  const { first, last, answers } = await mlp(300);
  expect(last).toBeLessThan(first / 10);
  expect(answers.map(Math.round)).toEqual([0, 1, 1, 0]);
});

it('has the logits of transformers', async () => {
  const found = await decoderLogits(folder, prompt, answer);
  const wanted = logits[0].slice(prompt.length).flat();
  expect(found.length).toBe(wanted.length);
  wanted.forEach((x, i) => expect(Math.abs(x - found[i])).toBeLessThan(1e-3));
});

it('takes a step of LoRA', async () => {
  const { before, after } = await loraStep(folder, prompt, answer);
  expect(after).toBeLessThan(before);
});
