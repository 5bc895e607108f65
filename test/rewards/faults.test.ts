import { afterEach, describe, expect, it } from 'vitest';
import { parseScores, parseScoreTag } from '../../src/rewards/parse.js';
import type { Answer } from '../../src/tiny/judge/answer.js';
import { faultNames, Faults, readFaultSpec } from '../../src/tiny/judge/faults.js';
import { malformations } from '../../src/tiny/judge/malformations.js';
import { startJudge, type RunningJudge } from '../../src/tiny/judge/server.js';
import { judgeUnderFaults, type Tally, type Trial } from '../../scripts/bench/judge_faults.js';

let judge: RunningJudge | null = null;
afterEach(async () => {
  await judge?.close();
  judge = null;
});

async function tryWith(faults: string, trial: Partial<Trial>): Promise<Tally> {
  judge = await startJudge({
    port: 0,
    host: '127.0.0.1',
    scores: 'digest',
    faults: new Faults(readFaultSpec(faults), 11),
  });
  return judgeUnderFaults({ url: judge.url, episodes: 64, episodesPerIteration: 64, seed: 3, ...trial });
}

function total(counts: Readonly<Record<string, number>>): number {
  return Object.values(counts).reduce((sum, count) => sum + count, 0);
}

describe('judgements', () => {
  it('are right where nothing fails', async () => {
    const tally = await tryWith('rate=0', {
      episodes: 32,
      policy: { attemptTimeoutMs: 60_000 },
      queryTimeoutMs: 60_000,
    });
    expect(tally).toMatchObject({
      right: 32,
      judgements: 64,
      requests: 64,
      differentTruths: 32,
      wrong: [],
      foreign: [],
    });
  });
});

describe('judgements while requests fail', () => {
  it('in every way there is are right or masked: none wrong, none of another episode, none lost', async () => {
    const tally = await tryWith('rate=0.6,down_s=0.05,latency_ms=50', {
      episodes: 256,
      episodesPerIteration: 128,
      policy: { attemptTimeoutMs: 500 },
    });
    expect(tally).toMatchObject({ judgements: 512, wrong: [], foreign: [], lost: 0 });
    expect(tally.right + total(tally.masked)).toBe(256);
    // An episode's score is found out by chance in fewer than one of 100 others.
    expect(tally.differentTruths).toBe(256);
    expect(tally.right).toBeGreaterThan(200);
    const met = judge?.stats().faults ?? {};
    expect(faultNames.filter((name) => !(name in met))).toEqual([]);
  }, 240_000);

  it('because the judge is away are asked again until they are scored', async () => {
    const tally = await tryWith('http503=0.5,reset=0.25', { episodes: 32, policy: { maxAttempts: 2 } });
    expect(total(tally.unscoredAtFirst)).toBeGreaterThan(8);
    expect(tally).toMatchObject({ wrong: [], foreign: [], lost: 0, alarms: 0 });
    expect(tally.recoveries).toBeGreaterThan(0);
    expect(tally.right + total(tally.masked)).toBe(32);
    // At most a fifth of each reward's episodes is left without a score.
    expect(tally.right).toBeGreaterThanOrEqual(26);
  });

  it('because the judge refuses are masked with an alarm', async () => {
    const tally = await tryWith('refusal=0.8', {});
    expect(tally).toMatchObject({ wrong: [], foreign: [], lost: 0 });
    expect(tally.alarms).toBeGreaterThan(0);
    expect(Object.keys(tally.masked)).toEqual(['refused']);
    expect(tally.right + total(tally.masked)).toBe(64);
  });
});

const answers: readonly Answer[] = [
  [0, 0],
  [10, 10],
  [7, 8],
  [1, 0],
  [2.5, 9.9],
].flatMap((scores) => [
  { form: 'list' as const, scores, reasoning: 'The ball is "red", as [1, 2] says.' },
  { form: 'tag' as const, scores: scores.slice(0, 1), reasoning: 'The ball is "red".' },
]);

describe.each(Object.entries(malformations))('an answer garbled as %s', (_name, { gives, write }) => {
  it.each(answers)('from $form $scores gives the true scores or none', (answer) => {
    const text = write[answer.form](answer);
    const parsed = answer.form === 'list' ? parseScores(text, 2) : parseScoreTag(text);
    if (gives[answer.form] === 'scores') expect(parsed).toEqual({ ok: true, scores: answer.scores });
    else expect(parsed).toMatchObject({ ok: false });
  });
});
