/** What judges answers in words, in tests of the recipes that make them. */
import type { Outcome } from '../../../src/rewards/score/types.js';
import { rewardOf, place as servers } from '../../rewards/server/served.js';
import type { TestJudge } from './contract.js';

/** A reward server that likes short answers. */
export async function likesShortAnswers(): Promise<TestJudge> {
  const running = servers();
  const away: Outcome = { kind: 'unscored', reason: 'server_error', detail: 'its judge is away', parts: {} };
  const server = await running.start({
    ...rewardOf({
      brevity: {
        weight: 1,
        score: ({ answer = '' }) => {
          const manner = judge.manner();
          if (manner === 'silent') return new Promise<Outcome>(() => {});
          if (manner === 'fails') return away;
          const value = 1 / (1 + answer.split(' ').length);
          return { kind: 'scored', value, normalised: value, parts: { 'brevity/words': answer.split(' ').length } };
        },
      },
    }),
    canary: async () => {
      if (judge.manner() === 'scores') return { ok: true };
      judge.onLook();
      return { ok: false, detail: away.detail };
    },
  });
  const judge: TestJudge = { url: server.url, manner: () => 'scores', onLook: () => {}, close: () => running.close() };
  return judge;
}
