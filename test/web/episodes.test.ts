import { appendFileSync, readFileSync, writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { writeMadeEpisodes, writeRun } from './made_runs.js';
import type { RunPaths } from '../../src/run/paths.js';
import { episodesOf, judgementsOf, type EpisodesRequest } from '../../src/web/episodes.js';
import { testFolders } from '../support/folder.js';

const folder = testFolders('episodes');
const request: EpisodesRequest = {
  ...{ iteration: null, heldOut: false, outcome: null, words: '' },
  ...{ order: 'as_recorded', offset: 0, limit: 100 },
};

async function run(...iterations: readonly number[]): Promise<RunPaths> {
  const paths = writeRun(folder(), { name: 'run', state: 'finished', iteration: 9, numIterations: 9 });
  for (const iteration of iterations) {
    await writeMadeEpisodes(paths, { iteration, prompts: 3, answers: 4, withImages: false });
  }
  return paths;
}
const keys = (paths: RunPaths, more: Partial<EpisodesRequest> = {}) =>
  episodesOf(paths, { ...request, ...more }).episodes.map(({ key }) => key);

describe('episodes', () => {
  it('are none if none were recorded', async () => {
    expect(episodesOf(await run(), request)).toMatchObject({ files: [], shown: null, total: 0, episodes: [] });
  });

  it('are those of the last iteration, or of the one that is asked for', async () => {
    const paths = await run(2, 4);
    const { files, shown, total, episodes } = episodesOf(paths, request);
    expect(files).toEqual([
      { iteration: 2, held_out: false },
      { iteration: 4, held_out: false },
    ]);
    expect([shown?.iteration, total]).toEqual([4, 12]);
    expect(episodes[0]).toMatchObject({ key: '4/0/0', outcome: 'scored', score: 4, sample: 'samples/000000.npz' });
    expect(keys(paths, { iteration: 2 })[0]).toBe('2/0/0');
    expect(() => keys(paths, { iteration: 3 })).toThrow('No episodes are recorded for iteration 3.');
  });

  it('are chosen by outcome and words', async () => {
    const paths = await run(4);
    expect(keys(paths, { outcome: 'unscored' })).toEqual(['4/0/3', '4/1/3', '4/2/3']);
    expect(keys(paths, { words: 'SQUARE 2', limit: 2, offset: 1 })).toEqual(['4/2/1', '4/2/2']);
  });

  it('are ordered by score and advantage, those without at the end', async () => {
    const paths = await run(4);
    expect(keys(paths, { order: 'best' }).slice(0, 2)).toEqual(['4/2/2', '4/1/2']);
    expect(keys(paths, { order: 'worst' })[0]).toBe('4/0/0');
    expect(keys(paths, { order: 'best' }).slice(-3)).toEqual(['4/0/3', '4/1/3', '4/2/3']);
    expect(keys(paths, { order: 'disadvantage' })[0]).toBe('4/0/0');
  });

  it('leave out lines that are none, and count them', async () => {
    const paths = await run(4);
    appendFileSync(paths.episodes(4), '{"key":"x"}\nnull\n{"half');
    expect(episodesOf(paths, request)).toMatchObject({ total: 12, wrong_lines: 3 });
  });

  it('never name an image by what is not a name of one', async () => {
    const paths = await run(4);
    const [line] = readFileSync(paths.episodes(4), 'utf8').split('\n');
    const wrong = { ...(JSON.parse(line) as object), source: '../../../etc/passwd', edited: 5, truth: 'a'.repeat(64) };
    writeFileSync(paths.episodes(4), `${JSON.stringify(wrong)}\n`);
    expect(episodesOf(paths, request).episodes[0]).toMatchObject({ source: null, edited: null, truth: 'a'.repeat(64) });
  });
});

describe('judgements of an episode', () => {
  it('are its own alone, the last to each question', async () => {
    const paths = await run(1, 11);
    const [first] = readFileSync(paths.judgements, 'utf8').split('\n');
    const again = { ...(JSON.parse(first) as object), text: 'said again' };
    appendFileSync(paths.judgements, `${JSON.stringify(again)}\n${JSON.stringify(again).slice(0, 60)}`);
    expect(judgementsOf(paths, '1/0/0')).toMatchObject([{ question: 'viescore_sc', text: 'said again' }]);
    expect(judgementsOf(paths, '11/0/0')).toMatchObject([{ question: 'viescore_sc', scores: [0, 0] }]);
    expect(judgementsOf(paths, '1/0')).toHaveLength(4);
    expect(judgementsOf(paths, '7/0/0')).toEqual([]);
    expect(judgementsOf(paths, '"},{')).toEqual([]);
  });
});
