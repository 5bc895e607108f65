import { expect, it } from 'vitest';
import { wireChanges } from '../../src/web/changes.js';

const changes = {
  iterations: [0, 9],
  means: [1, 2],
  change: { mean: 1, stderr: 0.5, n: 4 },
  better: 2,
  same: 1,
  worse: 1,
} as const;

it('names the images of an example in their order, and leaves out those that a recipe does not have', async () => {
  const edit = {
    prompt: 'make it red',
    before: { score: 1, image: null },
    after: { score: 3, image: 'b' },
    source: 'a',
    wanted: 'c',
  };
  const drawn = { ...edit, prompt: 'a cat', source: null, wanted: null };
  const { examples } = await wireChanges({ ...changes, examples: [edit, drawn] }, async (name) => `at ${name}`);
  expect(examples[0]).toEqual({
    prompt: 'make it red',
    gain: 2,
    images: [
      { label: 'source', score: null, at: 'at a' },
      { label: 'before', score: 1, at: null },
      { label: 'after', score: 3, at: 'at b' },
      { label: 'wanted', score: null, at: 'at c' },
    ],
  });
  expect(examples[1].images.map(({ label }) => label)).toEqual(['before', 'after']);
});
