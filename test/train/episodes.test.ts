import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { Answer } from '../../src/train/policies/policy.js';
import type { Outcome } from '../../src/rewards/score/types.js';
import { readEpisodes } from '../../src/run/episodes.js';
import { RunPaths } from '../../src/run/paths.js';
import { gatherEpisodes, recordEpisodes, type TrainBatch } from '../../src/train/batch.js';
import type { Prompt } from '../../src/train/scoring/task.js';
import { testFolders } from '../support/folder.js';
import { onRanks } from './groups.js';

const folder = testFolders('episodes');

function image(level: number) {
  return { width: 1, height: 1, data: Uint8Array.of(level, level, level) };
}

const NOTHING = { artifact: null, words: null, inWords: false };
const advantages = [0, 1].map(() => ({ advantages: [-1, 1], dropped: false, zeroSpread: false }));

/** Two answers to each of two prompts, of which the first alone has a labeled result. */
function iteration(): TrainBatch<Prompt, Answer> {
  const answer = { finished: true, logProbs: Float64Array.of(-1) } as unknown as Answer;
  const outcome: Outcome = { kind: 'scored', value: 1, normalised: 0.1, parts: {}, terms: [] };
  const prompts = [0, 1].map((at): Prompt => ({ id: `sample ${at}`, instruction: 'do', sourcePng: null }));
  return {
    iteration: 5,
    groups: prompts.map((prompt) => ({ prompt, answers: [answer, answer] })),
    outcomes: prompts.map(() => [outcome, outcome]),
    places: [null, { source: 1, index: 7 }],
    rounds: [2],
    kept: prompts.map((_, at) =>
      [0, 1].map((i) => ({
        key: `5/${at}/${i}`,
        record: {},
        edited: image(10 * at + i),
        truth: at === 0 && i === 0 ? image(200) : null,
        statistics: NOTHING,
      })),
    ),
  };
}

describe('recorded episodes', () => {
  it('name their images, among them the labeled result, which is one for all answers to a prompt', async () => {
    const paths = new RunPaths(folder(), 'run');
    await recordEpisodes(paths, iteration(), advantages, true);
    const lines = readEpisodes(paths, 5) ?? [];
    const named = lines.map(({ key, edited, truth }) => [key, typeof edited, truth]);
    const truth = lines[0]['truth'] as string;
    expect(named).toEqual([
      ['5/0/0', 'string', truth],
      ['5/0/1', 'string', truth],
      ['5/1/0', 'string', null],
      ['5/1/1', 'string', null],
    ]);
    expect(existsSync(paths.media(truth))).toBe(true);
  });

  it('name none where images are not kept, and if their sample is, if the key does not say it', async () => {
    const paths = new RunPaths(folder(), 'run');
    await recordEpisodes(paths, iteration(), advantages, false);
    const lines = readEpisodes(paths, 5) ?? [];
    expect(lines.map((line) => line['place'])).toEqual([undefined, undefined, [1, 7], [1, 7]]);
    expect(lines.some((line) => 'truth' in line || 'edited' in line)).toBe(false);
    expect(existsSync(paths.mediaDir)).toBe(false);
  });
});

describe('episodes that are exchanged', () => {
  it('are in the order of their rounds, and in each in that of the ranks', async () => {
    const found = await onRanks(2, async (group) => {
      const round = (name: string) => {
        const outcome: Outcome = { kind: 'unscored', reason: 'timeout', detail: `${name}${group.rank}`, parts: {} };
        const answers = [[`${name}${group.rank}`]];
        return { answers, rendered: [], outcomes: [[outcome]] };
      };
      return gatherEpisodes(group, [round('a'), round('b')], false, (answer) => answer);
    });
    for (const { answers, outcomes } of found) {
      expect(answers.flat()).toEqual(['a0', 'a1', 'b0', 'b1']);
      expect(outcomes.flat().map((one) => 'detail' in one && one.detail)).toEqual(answers.flat());
    }
    expect(found.map(({ kept }) => kept === null)).toEqual([false, true]);
  });

  it('are whole where they were sampled, and in outline elsewhere', async () => {
    const whole = [{ images: 'of 0' }, { images: 'of 1' }];
    const found = await onRanks(2, async (group) => {
      const own = { answers: [[whole[group.rank]]], rendered: [], outcomes: [] };
      return (await gatherEpisodes(group, [own], false, () => ({ images: '' }))).answers;
    });
    expect(found).toEqual([
      [[whole[0]], [{ images: '' }]],
      [[{ images: '' }], [whole[1]]],
    ]);
  });
});
