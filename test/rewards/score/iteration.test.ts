import { describe, expect, it } from 'vitest';
import { EndpointError, RunError } from '../../../src/core/errors.js';
import type { Clock } from '../../../src/core/clock.js';
import type { UnscoredSummary } from '../../../src/rewards/score/iteration.js';
import { scoreChunk, settleOutcomes, summarizeUnscored } from '../../../src/rewards/score/iteration.js';
import type {
  AnswerGroup,
  JudgeItem,
  Outcome,
  Reward,
  ScoreOptions,
  UnscoredReason,
} from '../../../src/rewards/score/types.js';
import { numberedImage } from '../judge/stub_judge.js';

const image = numberedImage(0);
const items: readonly JudgeItem[] = Array.from({ length: 10 }, (_, i) => ({
  key: String(i),
  instruction: 'x',
  source: image,
  edited: image,
  truth: null,
  finished: true,
}));

const scored = (value: number): Outcome => ({ kind: 'scored', value, normalised: value / 10, parts: {} });
const unscored = (reason: UnscoredReason): Outcome => ({
  kind: 'unscored',
  reason,
  detail: `found ${reason}`,
  parts: {},
});
const zero: Outcome = { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };

/** Time that passes only by waiting, at once. */
function instantClock(): Clock & { minutes(): number } {
  let time = 0;
  return {
    now: () => time,
    minutes: () => time / 60_000,
    after(milliseconds, callback) {
      let cancelled = false;
      setImmediate(() => {
        if (cancelled) return;
        time += milliseconds;
        callback();
      });
      return () => {
        cancelled = true;
      };
    },
  };
}

interface Scene {
  /** What the reward gives when asked again for item `key` at minute `minute`. */
  readonly again?: (key: number, minute: number) => Outcome;
  readonly canaryFrom?: number;
  readonly maxWaitS?: number;
  readonly abortAt?: number;
}

async function settle(outcomes: readonly Outcome[], scene: Scene = {}) {
  const clock = instantClock();
  const controller = new AbortController();
  const events: string[] = [];
  const asked: { key: string; options: ScoreOptions | undefined }[] = [];
  const reward: Reward = {
    name: 'test',
    async score(item, _signal, options) {
      asked.push({ key: item.key, options });
      return scene.again?.(Number(item.key), clock.minutes()) ?? scored(Number(item.key));
    },
  };
  const result = await settleOutcomes(
    reward,
    items,
    outcomes,
    { maxUnscoredFraction: 0.2, maxWaitS: scene.maxWaitS ?? 7200 },
    {
      judgeName: 'http://judge/v1',
      clock,
      signal: controller.signal,
      canary: async () => {
        if (scene.abortAt !== undefined && clock.minutes() >= scene.abortAt) controller.abort();
        return clock.minutes() >= (scene.canaryFrom ?? 0) ? { ok: true } : { ok: false, detail: 'connection: refused' };
      },
      onWaiting: (_summary, waitedS, found) => events.push(`waiting ${waitedS} ${found}`),
      onRecovered: (waitedS) => events.push(`recovered ${waitedS}`),
      onAlarm: ({ unscored: count }: UnscoredSummary) => events.push(`alarm ${count}`),
    },
  ).catch((error: unknown) => error);
  return { result, events, asked };
}

const withFailures = (reason: UnscoredReason, count: number): Outcome[] =>
  items.map((_, i) => (i < count ? unscored(reason) : scored(i)));
const allScored = items.map((_, i) => scored(i));

describe('scoreChunk', () => {
  it('keeps the order, whatever finishes first', async () => {
    const reward: Reward = {
      name: 'slow first',
      score: async (item) => {
        for (let turns = 10 - Number(item.key); turns > 0; turns--) {
          await new Promise((resolve) => setImmediate(resolve));
        }
        return scored(Number(item.key));
      },
    };
    expect(await scoreChunk(reward, items)).toEqual(allScored);
  });

  it('calls the others off before it raises', async () => {
    let calledOff = 0;
    const reward: Reward = {
      name: 'broken',
      score: (item, signal) => {
        if (item.key === '3') return Promise.reject(new Error('the disk is full'));
        return new Promise((resolve) => {
          signal?.addEventListener('abort', () => {
            calledOff++;
            resolve(unscored('aborted'));
          });
        });
      },
    };
    await expect(scoreChunk(reward, items)).rejects.toThrow('the disk is full');
    expect(calledOff).toBe(9);
  });
});

describe('the groups of a chunk', () => {
  const keyed = (...keys: readonly string[]): JudgeItem[] => keys.map((key) => ({ ...items[0], key }));

  it('are the answers of one prompt in one iteration, and no held-out ones', async () => {
    const chunk = keyed(
      '1/0/0',
      '1/1/0',
      '1/0/1',
      '1/2/0',
      'validation/1/s/sampled/0',
      'validation/1/s/sampled/1',
      '7',
    );
    const groups = new Map<string, AnswerGroup | undefined>();
    const reward: Reward = {
      name: 'test',
      async score(item, _signal, options) {
        groups.set(item.key, options?.group);
        expect(options?.askAgain).toBe(true);
        return scored(1);
      },
    };
    await scoreChunk(reward, chunk, undefined, { askAgain: true });
    expect(groups.get('1/0/0')?.answers.map(({ key }) => key)).toEqual(['1/0/0', '1/0/1']);
    expect(groups.get('1/0/1')).toBe(groups.get('1/0/0'));
    expect([...groups].flatMap(([key, group]) => (group === undefined ? [key] : []))).toEqual([
      '1/1/0',
      '1/2/0',
      'validation/1/s/sampled/0',
      'validation/1/s/sampled/1',
      '7',
    ]);
  });

  it.each([
    [true, ['1/0/0', '1/0/1', '1/2/0', 'validation/1/s/sampled/0']],
    [false, ['1/0/0', '1/2/0', 'validation/1/s/sampled/0']],
  ])('are asked about again as wholes where the reward compares: %s', async (compares, expected) => {
    const chunk = keyed(
      '1/0/0',
      '1/0/1',
      '1/1/0',
      '1/1/1',
      '1/2/0',
      'validation/1/s/sampled/0',
      'validation/1/s/sampled/1',
    );
    const lacking = new Set([0, 4, 5]);
    const outcomes = chunk.map((_, i) => (lacking.has(i) ? unscored('timeout') : scored(1)));
    const asked: string[] = [];
    const reward: Reward = {
      name: 'test',
      compares,
      async score(item) {
        asked.push(item.key);
        return scored(2);
      },
    };
    const settled = await settleOutcomes(
      reward,
      chunk,
      outcomes,
      { maxUnscoredFraction: 0.1, maxWaitS: 10 },
      { judgeName: 'j', canary: async () => ({ ok: true }) },
    );
    expect(asked).toEqual(expected);
    expect(settled.map((outcome) => (outcome.kind === 'scored' ? outcome.value : null))).toEqual(
      chunk.map(({ key }) => (expected.includes(key) ? 2 : 1)),
    );
  });
});

describe('summarizeUnscored', () => {
  it('counts of what was put to the judge', () => {
    const outcomes = [scored(1), zero, zero, unscored('timeout'), unscored('timeout'), unscored('refused')];
    expect(summarizeUnscored(outcomes)).toEqual({
      unscored: 3,
      judged: 4,
      fraction: 0.75,
      reasons: { timeout: 2, refused: 1 },
      example: 'found timeout',
    });
    expect(summarizeUnscored([zero]).fraction).toBe(0);
  });
});

describe('settleOutcomes', () => {
  it('continues with a few unscored episodes', async () => {
    const outcomes = withFailures('timeout', 2);
    expect(await settle(outcomes)).toEqual({ result: outcomes, events: [], asked: [] });
  });

  it('waits for a judge that is down, checks it every minute, and repeats unscored requests', async () => {
    const { result, events, asked } = await settle(withFailures('connection', 4), { canaryFrom: 3 });
    expect(result).toEqual(allScored);
    expect(events).toEqual([
      'waiting 0 found connection',
      'waiting 60 connection: refused',
      'waiting 120 connection: refused',
      'waiting 180 connection: refused',
      'recovered 180',
    ]);
    expect(asked).toEqual(['0', '1', '2', '3'].map((key) => ({ key, options: { askAgain: true } })));
  });

  it('continues waiting while the judge answers its canary but not the questions', async () => {
    const { result, events } = await settle(withFailures('timeout', 10), {
      again: (key, minute) => (minute < 2 && key > 3 ? unscored('rate_limited') : scored(key)),
    });
    expect(result).toEqual(allScored);
    expect(events.at(-1)).toBe('recovered 120');
  });

  it('masks and raises an alarm where the judge works and its answers stay unusable', async () => {
    const { result, events } = await settle(withFailures('unparsable', 6), {
      again: (key) => (key < 5 ? unscored('unparsable') : scored(key)),
    });
    expect(result).toEqual(withFailures('unparsable', 5));
    expect(events).toEqual(['waiting 0 found unparsable', 'alarm 5']);
  });

  it('gives up after the longest wait, with exit code 3 and what to do', async () => {
    const { result, events } = await settle(withFailures('connection', 4), { canaryFrom: Infinity, maxWaitS: 150 });
    expect(result).toBeInstanceOf(EndpointError);
    const error = result as EndpointError;
    expect(error.exitCode).toBe(3);
    expect(error.toText()).toMatch(/http:\/\/judge\/v1.*150 s.*4 of 10.*4 connection.*refused/s);
    expect(error.next).toContain('resume');
    expect(events.at(-1)).toBe('waiting 150 connection: refused');
  });

  it("fails at once where the reward's own code scores nothing, and asks no one again", async () => {
    const { result, events, asked } = await settle(withFailures('own_code', 10), { canaryFrom: Infinity });
    expect(result).toBeInstanceOf(RunError);
    expect((result as RunError).toText()).toMatch(/own code scored none of 10 episodes; the first: found own_code/);
    expect((result as RunError).exitCode).toBe(1);
    expect([events, asked]).toEqual([[], []]);
    const rest = items.map((_, i) => (i < 7 ? unscored('own_code') : zero));
    expect((await settle(rest)).result).toBeInstanceOf(RunError);
  });

  it("raises an alarm without a wait where the reward's own code scores some, or is asked of few", async () => {
    const outcomes = withFailures('own_code', 9);
    expect(await settle(outcomes)).toEqual({ result: outcomes, events: ['alarm 9'], asked: [] });
    const few = items.map((_, i) => (i < 2 ? unscored('own_code') : zero));
    expect(await settle(few)).toEqual({ result: few, events: ['alarm 2'], asked: [] });
  });

  it('stops waiting when it is canceled', async () => {
    const outcomes = withFailures('connection', 4);
    expect((await settle(outcomes, { canaryFrom: Infinity, abortAt: 2 })).result).toEqual(outcomes);
  });
});
