import { describe, expect, it } from 'vitest';
import { parseScores, parseScoreTag } from '../../../src/rewards/judge/parse.js';
import type { Answer } from '../../../src/rewards/rule_judge/protocol.js';
import { malformations } from '../rule_judge/malformations.js';
import { inAStorm, total, tryWith } from './under_faults.js';

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
  it('in many ways are right or masked: none wrong, none of another episode, none lost', async () => {
    const { tally, met } = await inAStorm(32);
    expect(tally.right).toBeGreaterThan(16);
    expect(met.length).toBeGreaterThan(8);
  });

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
    const tally = await tryWith('refusal=0.8', { policy: { attemptTimeoutMs: 60_000 }, queryTimeoutMs: 60_000 });
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
