import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from 'vitest';
import { openAiError, startStubJudge, stubModel, type Behave, type StubJudge } from '../rewards/judge/stub_judge.js';
import { Place, RL, until, type Ended } from './editrl.js';
import { isCanary, scoreByPictures } from './scorer.js';

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

describe('a judge that', () => {
  it('is down when a run begins ends it with its address and what to do', async () => {
    const ended = await place.train(RL, ...settings('down', 'http://127.0.0.1:9/v1', 'reward.max_wait_s=0'));
    expect(ended.code).toBe(3);
    expect(ended.err).toMatch(
      /^editrl: http:\/\/127\.0\.0\.1:9\/v1: the judge is not ready: .*\n {2}Start the judge .*\n$/,
    );
    expect(place.state('down')).toMatchObject({ state: 'interrupted' });
  });

  it('serves another model is told apart from one that is down', async () => {
    judge = await startStubJudge(scoreByPictures);
    const ended = await place.train(RL, ...settings('other', judge.url), '--set', 'reward.model=another');
    expect(ended.code).toBe(3);
    expect(ended.err).toContain(`it does not serve 'another'; it serves: '${stubModel}'`);
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
      /^editrl: .*the judge did not come back within 0 s: .*\n {2}Start the judge again .*\n$/s,
    );
    expect(ended.err).not.toMatch(/\n {4}at /);
    const state = place.state('left');
    expect(state).toMatchObject({ state: 'interrupted' });
    expect(state?.iteration).toBeLessThan(6);

    expect(await trainWith('left', scoreByPictures)).toMatchObject({ code: 0 });
    expect(weights('left').equals(weights('good'))).toBe(true);
  });

  it('refuses every first request as too many is asked again', async () => {
    const ended = await trainWith('limited', (request) =>
      request.asked === 0 && !isCanary(request)
        ? openAiError(429, 'slow down', { 'retry-after': '0' })
        : scoreByPictures(request),
    );
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(weights('limited').equals(weights('good'))).toBe(true);
  });

  it('says nothing to every first request is asked again after its time', async () => {
    const slow = new Set<string>();
    const ended = await trainWith(
      'slow',
      (request) => {
        if (slow.size >= 3 || request.asked > 0 || isCanary(request)) return scoreByPictures(request);
        slow.add(request.images.join());
        return { kind: 'silent' };
      },
      'reward.timeout_s=0.5',
    );
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(slow.size).toBe(3);
    expect(weights('slow').equals(weights('good'))).toBe(true);
  });

  it('answers nonsense is said to, counted, and never becomes a number', async () => {
    const ended = await trainWith(
      'nonsense',
      () => ({ kind: 'text', text: 'What a lovely picture!' }),
      'reward.max_attempts=1',
    );
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(ended.out).toMatch(/warning: the judge answers, but (\d+) of \1 answers cannot be used: .*lovely/);
    for (const line of place.metrics('nonsense').slice(1)) {
      // An answer that did not end is 0 by rule, without the judge; everything else stays without a score.
      const byRule = Number(line['reward/zero_by_rule']);
      expect(line['reward/mean']).toBe(byRule > 0 ? 0 : 'NaN');
      expect(line['reward/unscored/unparsable']).toBe(16 * (1 - byRule));
    }
    const start = place.checkpointFile('nonsense', 4, 'policy.safetensors');
    expect(weights('nonsense').equals(start)).toBe(true);
  });

  it('fails in every way there is, as `editrl judge --faults` does, costs episodes and never the run', async () => {
    const faults = 'rate=0.3,refusal=0.2,http429_absurd=0,down_s=0.2,latency_ms=50';
    const faulty = place.start(['judge', '--port', '0', '--faults', faults, '--faults-seed', '5']);
    try {
      await until('it says what it injects', () => faulty.out().includes('injects'));
      expect(faulty.out()).toMatch(/^It injects faults into 50% of all requests, seed 5: .*refusal 20%/m);
      const url = /http:\S+\/v1/.exec(faulty.out())?.[0];
      const sets = [
        'run_name=faulty',
        `reward.endpoint=${url}`,
        'reward.timeout_s=2',
        'reward.max_unscored_fraction=1',
        'reward.zero_if_unfinished=false',
      ];
      const ended = await place.train(RL, ...sets.flatMap((set) => ['--set', set]));
      expect(ended).toMatchObject({ code: 0, err: '' });
    } finally {
      faulty.kill('SIGINT');
    }
    expect(await faulty.ended).toMatchObject({ code: 0, err: '' });
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
