import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { JudgeItem, Outcome } from '../../../src/rewards/score/types.js';
import { ScoringInProgress, type Scorer } from '../../../src/train/scoring/scorer.js';
import { scored } from '../small_training.js';

/** A scorer whose chunks take turns: what each comes to, by its first item's key. */
function scorerFrom(chunks: Readonly<Record<string, () => Promise<Outcome[]>>>): Scorer {
  return {
    begin: (items) => chunks[items[0].key](),
    settle: async (_items, outcomes) => [...outcomes],
    close: async () => {},
  };
}
const chunk = (key: string): JudgeItem[] => [
  { key, instruction: '', source: null, edited: null, truth: null, finished: true },
];

describe('chunks that are scored while others are sampled', () => {
  it('give their outcomes in the order in which they began', async () => {
    const scoring = new ScoringInProgress(
      scorerFrom({ late: () => sleep(20, [scored(1), scored(2)]), soon: async () => [scored(3)] }),
    );
    scoring.begin(chunk('late'));
    scoring.begin(chunk('soon'));
    expect(await scoring.outcomes()).toEqual([scored(1), scored(2), scored(3)]);
  });

  it('stop the next one where one has failed', async () => {
    const scoring = new ScoringInProgress(
      scorerFrom({ broken: () => Promise.reject(new Error('no judge')), next: async () => [scored(1)] }),
    );
    scoring.begin(chunk('broken'));
    await sleep(1);
    expect(() => scoring.begin(chunk('next'))).toThrow('no judge');
    await expect(scoring.outcomes()).rejects.toThrow('no judge');
  });

  it('have all ended when a failure of the sampling is raised', async () => {
    let ended = false;
    const slow = async (): Promise<Outcome[]> => {
      await sleep(20);
      ended = true;
      return [scored(1)];
    };
    const scoring = new ScoringInProgress(scorerFrom({ slow }));
    scoring.begin(chunk('slow'));
    expect(await scoring.firstError(new Error('out of memory'))).toEqual(new Error('out of memory'));
    expect(ended).toBe(true);
  });

  it('raise what failed first in time', async () => {
    const scoring = new ScoringInProgress(scorerFrom({ broken: () => Promise.reject(new Error('no judge')) }));
    scoring.begin(chunk('broken'));
    await sleep(1);
    expect(await scoring.firstError(new Error('out of memory'))).toEqual(new Error('no judge'));
  });
});
