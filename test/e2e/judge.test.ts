import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { startStubJudge, stubModel, type Behave, type StubJudge } from '../rewards/judge/stub_judge.js';
import { Place, RL, until, type Ended } from './editrl.js';
import { isCanary, scoreByPictures } from './scorer.js';
import { Faults, readFaultSpec } from '../rewards/rule_judge/faults.js';
import { startFaultyJudge } from '../rewards/rule_judge/faulty_judge.js';

let place: Place;
let judge: StubJudge | null = null;

beforeAll(async () => {
  place = Place.make(inject('template'));
  expect(await trainWith('good', scoreByPictures)).toMatchObject({ code: 0, err: '' });
});
afterEach(() => closeJudge());
afterAll(() => place.remove());

async function closeJudge(): Promise<void> {
  await judge?.close();
  judge = null;
}

function settings(run: string, url: string, ...more: readonly string[]): string[] {
  const sets = [`run_name=${run}`, `reward.endpoint=${url}`, `reward.model=${stubModel}`, ...more];
  return sets.flatMap((set) => ['--set', set]);
}

async function trainWith(run: string, behave: Behave, ...more: readonly string[]): Promise<Ended> {
  judge = await startStubJudge(behave);
  const ended = await place.train(RL, ...settings(run, judge.url, ...more));
  await closeJudge();
  return ended;
}

function weights(run: string): Buffer {
  return place.checkpointFile(run, 6, 'policy.safetensors');
}

/** What the judge was asked for a run, in no order. */
function questions(run: string): string[] {
  return judgements(run)
    .map(({ key }) => key)
    .sort();
}

/** The requests that this took. */
function requests(run: string): number {
  return judgements(run).reduce((sum, { attempts }) => sum + attempts, 0);
}

function judgements(run: string): readonly { readonly key: string; readonly attempts: number }[] {
  const lines = readFileSync(join(place.run(run), 'judgements.jsonl'), 'utf8')
    .trim()
    .split('\n');
  return lines.map((line) => JSON.parse(line) as { key: string; attempts: number });
}

/** A run's metrics, but for those that say how long something took. */
function learned(run: string): readonly Record<string, unknown>[] {
  const timed = (name: string): boolean => name === 'time' || name.startsWith('time/') || name.endsWith('/s');
  return place.metrics(run).map((line) => Object.fromEntries(Object.entries(line).filter(([name]) => !timed(name))));
}

describe('a judge that', () => {
  it('is down when a run begins ends it with its address and what to do', async () => {
    const ended = await place.train(RL, ...settings('down', 'http://127.0.0.1:9/v1', 'reward.max_wait_s=0'));
    expect(ended.code).toBe(3);
    expect(ended.err).toMatch(
      /^editrl: http:\/\/127\.0\.0\.1:9\/v1: the judge is not ready: .*\n {2}Start the judge .*\n$/,
    );
    expect(place.state('down')).toMatchObject({ state: 'interrupted' });
  });

  it('goes away ends the run after a checkpoint, and nothing is lost', async () => {
    judge = await startStubJudge(scoreByPictures);
    const live = place.startTraining(
      RL,
      ...settings('left', judge.url, 'reward.max_wait_s=0', 'reward.max_attempts=1'),
    );
    await until('iteration 2', () => !live.isAlive() || (place.state('left')?.iteration ?? 0) >= 2);
    await closeJudge();
    const ended = await live.ended;
    expect(ended.code).toBe(3);
    expect(ended.err).toMatch(
      /^editrl: .*the judge did not answer again within 0 s: .*\n {2}Start the judge again .*\n$/s,
    );
    expect(ended.err).not.toMatch(/\n {4}at /);
    const state = place.state('left');
    expect(state).toMatchObject({ state: 'interrupted' });
    expect(state?.iteration).toBeLessThan(6);

    expect(await trainWith('left', scoreByPictures)).toMatchObject({ code: 0 });
    expect(weights('left').equals(weights('good'))).toBe(true);
  });

  it('may be asked no more pauses the run, which continues as if nothing had been once it may', async () => {
    // Every question takes three requests, with the seeds 42 to 44: of these the forecast knows one.
    const rambling: Behave = (request) =>
      Number(request.body['seed']) < 44 && !isCanary(request)
        ? { kind: 'text', text: 'What a lovely picture!' }
        : scoreByPictures(request);
    const refused = await trainWith('short', rambling, 'reward.max_judge_calls=100');
    expect(refused).toMatchObject({ code: 2 });
    expect(refused.err).toMatch(
      /^editrl: reward\.max_judge_calls: short needs about 384 judge requests for its last 6 iterations; allowed: 100 in total\n {2}Set /,
    );
    expect(place.state('short')).toBeNull();

    const ended = await trainWith('short', rambling, 'reward.max_judge_calls=384');
    expect(ended).toMatchObject({ code: 3 });
    const [, sent] = /judge request limit exceeded \((\d+) of 384.*\)\n {2}Raise it/.exec(ended.err) ?? [];
    expect(requests('short')).toBe(Number(sent));
    expect(Number(sent)).toBeGreaterThanOrEqual(384);
    expect(Number(sent)).toBeLessThan(384 + 3 * 64);
    expect(place.state('short')).toMatchObject({ state: 'interrupted' });
    const reached = place.state('short')?.iteration ?? 0;
    expect(reached).toBeGreaterThan(0);
    expect(reached).toBeLessThan(6);

    const again = await trainWith('short', rambling, 'reward.max_judge_calls=384');
    expect(again.code).toBe(2);
    expect(again.err).toContain(`after ${sent} requests so far; allowed: 384 in total`);
    expect(await trainWith('short', rambling, 'reward.max_judge_calls=2000')).toMatchObject({ code: 0, err: '' });
    expect(weights('short').equals(weights('good'))).toBe(true);
    expect(learned('short')).toEqual(learned('good'));
    // Nothing was asked twice.
    expect(questions('short')).toEqual(questions('good'));
    expect(requests('short')).toBe(3 * questions('good').length);
  });

  it('fails in every way there is costs episodes and never the run', async () => {
    const faults = 'rate=0.3,refusal=0.2,http429_absurd=0,down_s=0.2,latency_ms=50';
    const faulty = await startFaultyJudge(new Faults(readFaultSpec(faults), 5));
    try {
      const sets = [
        'run_name=faulty',
        `reward.endpoint=${faulty.url}`,
        'reward.timeout_s=2',
        'reward.max_unscored_fraction=1',
        'reward.zero_if_unfinished=false',
      ];
      const ended = await place.train(RL, ...sets.flatMap((set) => ['--set', set]));
      expect(ended).toMatchObject({ code: 0, err: '' });
    } finally {
      await faulty.close();
    }
    expect(place.state('faulty')).toMatchObject({ state: 'finished', iteration: 6 });
    const refused = place.metrics('faulty').map((line) => Number(line['reward/unscored/refused'] ?? 0));
    expect(Math.max(...refused)).toBeGreaterThan(0);
    const means = place.metrics('faulty').flatMap((line) => (typeof line['reward/mean'] === 'number' ? [line] : []));
    expect(means.length).toBeGreaterThan(0);
    for (const line of means) {
      expect(line['reward/mean']).toBeGreaterThanOrEqual(0);
      expect(line['reward/mean']).toBeLessThanOrEqual(10);
    }
  });
});
