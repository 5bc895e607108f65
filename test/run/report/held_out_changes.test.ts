import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { heldOutKey, writeHeldOutEpisodes } from '../../../src/run/episodes.js';
import { RunPaths } from '../../../src/run/paths.js';
import { readHeldOutChanges } from '../../../src/run/report/held_out_changes.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('changes');
const image = (digit: number): string => String(digit % 10).repeat(64);

/** Scores by prompt; null for one that a judge could not score. */
function episodes(iteration: number, scores: readonly (number | null)[], images = true): object[] {
  return ['sampled', 'greedy'].flatMap((sampling) =>
    scores.map((score, prompt) => ({
      key: heldOutKey({ iteration, set: 's', sampling, prompt }),
      instruction: `prompt ${prompt}`,
      outcome:
        score === null
          ? { kind: 'unscored', reason: 'timeout', detail: '', parts: {} }
          : { kind: 'scored', value: sampling === 'greedy' ? 10 : score, normalised: 0, parts: {} },
      ...(images ? { source: image(prompt), edited: image(prompt), truth: null } : {}),
    })),
  );
}

function runWith(...evaluations: readonly (readonly [number, readonly object[]])[]): RunPaths {
  const paths = new RunPaths(newFolder(), 'run');
  mkdirSync(join(paths.episodesDir), { recursive: true });
  for (const [iteration, lines] of evaluations) writeHeldOutEpisodes(paths, iteration, lines);
  return paths;
}

it('counts sampled prompts that were scored twice, and computes their paired difference', () => {
  const paths = runWith(
    [0, episodes(0, [0, 4, 4, 2, null])],
    [5, episodes(5, [0, 4, 4, 2, 4])],
    [9, episodes(9, [3, 4, 2, 4, 4])],
  );
  expect(readHeldOutChanges(paths)).toMatchObject({
    iterations: [0, 9],
    means: [2.5, 3.25],
    change: { mean: 0.75, n: 4 },
    better: 2,
    same: 1,
    worse: 1,
  });
});

it('shows gains at even ranks, the median loss, and the first prompt that still fails', () => {
  const before = [0, 0, 0, 0, 0, 0, 0, 5, 5, 5, 9, 0, 0];
  const after = [7, 6, 5, 4, 3, 2, 1, 4, 3, 2, 9, 0, 0];
  const { examples = [] } = readHeldOutChanges(runWith([0, episodes(0, before)], [1, episodes(1, after)])) ?? {};
  expect(examples.map(({ prompt }) => prompt)).toEqual([
    'prompt 0',
    'prompt 2',
    'prompt 4',
    'prompt 6',
    'prompt 8',
    'prompt 11',
  ]);
  expect(examples[0]).toMatchObject({
    before: { score: 0, image: image(0) },
    after: { score: 7 },
    source: image(0),
    wanted: null,
  });
});

it('has no examples without images, and is null before a second evaluation', () => {
  expect(readHeldOutChanges(runWith([0, episodes(0, [1], false)], [1, episodes(1, [2], false)]))?.examples).toEqual([]);
  expect(readHeldOutChanges(runWith([0, episodes(0, [1])]))).toBeNull();
});
