/** What judges answers in tests of the recipes that make them. */
import type { JudgeItem, Outcome } from '../../../src/rewards/score/types.js';
import { rewardOf, place as servers } from '../../rewards/server/served.js';
import type { TestJudge } from './contract.js';

/** A reward server of one term, which gives from 0 to 1. */
async function likes(term: string, valueOf: (item: JudgeItem) => number): Promise<TestJudge> {
  const running = servers();
  const server = await running.start({
    ...rewardOf({
      [term]: {
        weight: 1,
        score: (item) => {
          if (judge.manner() === 'silent') return new Promise<Outcome>(() => {});
          const value = valueOf(item);
          return { kind: 'scored', value, normalised: value, parts: { [`${term}/value`]: value } };
        },
      },
    }),
  });
  const judge: TestJudge = { url: server.url, manner: () => 'scores', close: () => running.close() };
  return judge;
}

export const likesShortAnswers = (): Promise<TestJudge> =>
  likes('brevity', ({ answer = '' }) => 1 / (1 + answer.split(' ').length));

export const likesDarkPictures = (): Promise<TestJudge> =>
  likes('darkness', ({ edited }) => {
    const data = edited?.data ?? new Uint8Array([255]);
    return 1 - data.reduce((sum, byte) => sum + byte, 0) / (255 * data.length);
  });
