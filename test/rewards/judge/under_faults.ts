/** Judgements while a judge misbehaves, and what must be true of all of them. */
import { afterEach, expect } from 'vitest';
import { Faults, readFaultSpec } from '../rule_judge/faults.js';
import { startJudge, type RunningJudge } from '../../../src/rewards/rule_judge/server.js';
import { judgeUnderFaults, type Tally, type Trial } from './judge_faults.js';

let judge: RunningJudge | null = null;
afterEach(async () => {
  await judge?.close();
  judge = null;
});

export async function tryWith(faults: string, trial: Partial<Trial>): Promise<Tally> {
  judge = await startJudge({
    port: 0,
    host: '127.0.0.1',
    scores: 'digest',
    faults: new Faults(readFaultSpec(faults), 11),
  });
  return judgeUnderFaults({ url: judge.url, episodes: 64, episodesPerIteration: 64, seed: 3, ...trial });
}

export function total(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

/** Three of five requests fail, in ways that are drawn from all there are. */
export async function inAStorm(episodes: number): Promise<{ tally: Tally; met: readonly string[] }> {
  const tally = await tryWith('rate=0.6,down_s=0.05,latency_ms=50', {
    episodes,
    episodesPerIteration: episodes / 2,
    policy: { attemptTimeoutMs: 500 },
  });
  expect(tally).toMatchObject({ judgements: 2 * episodes, wrong: [], foreign: [], lost: 0 });
  expect(tally.right + total(tally.masked)).toBe(episodes);
  // An episode's score is found out by chance in fewer than one of 100 others.
  expect(tally.differentTruths).toBe(episodes);
  return { tally, met: Object.keys(judge?.stats().faults ?? {}) };
}
