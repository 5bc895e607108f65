import { mkdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { writeHeldOutEpisodes } from '../../../src/run/episodes.js';
import { RunPaths } from '../../../src/run/paths.js';
import { heldOutAnswers } from '../../../src/run/report/answers.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('answers');

function run(): RunPaths {
  const paths = new RunPaths(newFolder(), 'mine');
  mkdirSync(paths.episodesDir, { recursive: true });
  return paths;
}

const scored = (value: number) => ({ kind: 'scored', value, normalised: value, parts: {} });
const episode = (key: string, outcome: object, more: object = {}) => ({
  key,
  sample: `rows:${key.split('/').at(-1) ?? ''}`,
  instruction: `ask ${key.split('/').at(-1) ?? ''}`,
  finished: true,
  text: `said ${key}`,
  outcome,
  ...more,
});
const evaluation = (iteration: number, values: readonly number[], more: object = {}) => [
  ...values.map((value, i) => episode(`validation/${iteration}/words/sampled/${i}`, scored(value), more)),
  ...values.map((_, i) => episode(`validation/${iteration}/words/greedy/${i}`, scored(9))),
];

describe('held-out answers', () => {
  it('are the worst, a middle and the best after training, with what was said before', () => {
    const paths = run();
    writeHeldOutEpisodes(paths, 0, evaluation(0, [0.1, 0.2, 0.3, 0.4, 0.5]));
    writeHeldOutEpisodes(paths, 5, evaluation(5, [0, 0, 0, 0, 0]));
    writeHeldOutEpisodes(paths, 10, evaluation(10, [0.9, 0.1, 0.5, 0.8, 0.4], { expected: 'it' }));
    const found = heldOutAnswers(paths);
    expect(found.map(({ which, sample, before, after }) => [which, sample, before?.score, after.score])).toEqual([
      ['worst', 'rows:1', 0.2, 0.1],
      ['middle', 'rows:2', 0.3, 0.5],
      ['best', 'rows:0', 0.1, 0.9],
    ]);
    expect(found[0]).toEqual({
      which: 'worst',
      sample: 'rows:1',
      prompt: 'ask 1',
      expected: 'it',
      before: { score: 0.2, thought: null, answer: 'said validation/0/words/sampled/1' },
      after: { score: 0.1, thought: null, answer: 'said validation/10/words/sampled/1' },
    });
  });

  it('are separated from thoughts', () => {
    const paths = run();
    writeHeldOutEpisodes(paths, 0, evaluation(0, [1], { thought: 'hm', answer: '4', text: '<think>hm</think>4' }));
    expect(heldOutAnswers(paths)).toEqual([
      {
        which: 'worst',
        sample: 'rows:0',
        prompt: 'ask 0',
        expected: null,
        before: null,
        after: { score: 1, thought: 'hm', answer: '4' },
      },
    ]);
  });

  it('may have no score', () => {
    const paths = run();
    const zero = episode('validation/0/a/sampled/0', { kind: 'zero_by_rule', reason: 'unfinished', parts: {} });
    const none = episode('validation/0/b/sampled/0', { kind: 'unscored', reason: 'timeout', detail: '', parts: {} });
    writeHeldOutEpisodes(paths, 0, [zero, none]);
    expect(heldOutAnswers(paths).map(({ after }) => after.score)).toEqual([0, null]);
  });

  it('are none before the first evaluation, and of images', () => {
    const paths = run();
    expect(heldOutAnswers(paths)).toEqual([]);
    const image = { ...episode('validation/0/s/sampled/0', scored(1)), text: undefined };
    writeHeldOutEpisodes(paths, 0, [image]);
    expect(heldOutAnswers(paths)).toEqual([]);
  });
});
