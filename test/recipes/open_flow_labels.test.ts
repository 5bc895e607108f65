/** What supervised training is shown of labeled images. */
import { describe, expect, it } from 'vitest';
import { flowLabels } from '../../src/recipes/shared/flow/answers.js';
import type { InpaintTask } from '../../src/recipes/ip_adapter/task.js';

/** A task of which every sample is an image of one token. */
const task = {
  settings: { seed: 7 },
  prompt: (index: number) =>
    Promise.resolve({
      id: String(index),
      wanted: () => Promise.resolve(Float32Array.of(0.5, -0.5)),
      flow: {
        rows: 1,
        columns: 1,
        text: Float32Array.of(1, 2),
        pooled: null,
        imageFeatures: Float32Array.of(3),
        context: Float32Array.of(4),
      },
    }),
  predictsSample: false,
  heldOut: [],
} as unknown as InpaintTask;

const batch = (condition_dropout: number, iteration = 1) =>
  flowLabels(task, { batch_size: 400, condition_dropout }, 0).batch(iteration);

describe('a batch of labeled images', () => {
  it('shows a share without words and style, but with what is to be painted into', async () => {
    const shown = await batch(0.25);
    const bare = shown.filter(({ prompt }) => prompt.flow.text.every((one) => one === 0));
    // 100 expected, of deviation 8.7.
    expect(Math.abs(bare.length - 100)).toBeLessThan(35);
    for (const { prompt } of bare) {
      expect([...prompt.flow.imageFeatures!, ...prompt.flow.context]).toEqual([0, 4]);
    }
    const others = shown.filter((one) => !bare.includes(one));
    for (const { prompt } of others) expect([...prompt.flow.text, ...prompt.flow.imageFeatures!]).toEqual([1, 2, 3]);
  });

  it('draws the same noise whatever is left out, and another one in each iteration', async () => {
    const [with_, without, next] = await Promise.all([batch(0.5), batch(0), batch(0, 2)]);
    expect(without.every(({ prompt }) => prompt.flow.text[0] === 1)).toBe(true);
    expect(with_.map(({ answer }) => answer.actions)).toEqual(without.map(({ answer }) => answer.actions));
    expect(next.map(({ answer }) => answer.actions[0].sigma)).not.toEqual(
      without.map(({ answer }) => answer.actions[0].sigma),
    );
  });

  it('leads from noise to the image', async () => {
    for (const { answer } of (await batch(0)).slice(0, 9)) {
      const [{ sigma, x, drawn }] = answer.actions;
      // x - sigma v is the image.
      x.forEach((one, i) => expect(one - sigma * drawn[i]).toBeCloseTo([0.5, -0.5][i], 5));
    }
  });
});
