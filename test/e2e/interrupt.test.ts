import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { startStubJudge, stubModel, type StubJudge } from '../rewards/judge/stub_judge.js';
import { childrenOf, isRunning, Place, RL, until } from './editrl.js';
import { isCanary, scoreByPictures } from './scorer.js';

describe('Ctrl-C', () => {
  let place: Place;
  let other: Place;
  let judge: StubJudge;
  let judgeStalls = false;
  beforeAll(async () => {
    place = Place.make(inject('template'));
    other = Place.make(inject('template'));
    judge = await startStubJudge((request) =>
      judgeStalls && !isCanary(request) ? { kind: 'reset' } : scoreByPictures(request),
    );
  });
  afterAll(async () => {
    await judge.close();
    place.remove();
    other.remove();
  });

  const longer = ['--set', 'num_iterations=9', '--set', 'run_name=mine'];
  const stubbed = (): string[] => [
    ...longer,
    ...['--set', `reward.endpoint=${judge.url}`, '--set', `reward.model=${stubModel}`],
    ...['--set', 'reward.max_attempts=1'],
  ];

  it('ends after the iteration with a checkpoint and 130, and the same command continues', async () => {
    const live = place.startTraining(RL, ...longer);
    await until('iteration 3', () => !live.isAlive() || (place.state('mine')?.iteration ?? 0) >= 3);
    const started = childrenOf(live.pid);
    // Its worker, its judge and its guardian.
    expect(started).toHaveLength(3);
    live.kill('SIGINT');
    const stopped = await live.ended;
    expect(stopped).toMatchObject({ code: 130, signal: null });
    expect(stopped.err).toBe('stopping after this iteration (repeat to stop immediately)\n');
    await until('everything that it started has ended', () => !started.some(isRunning));
    const state = place.state('mine');
    expect(state).toMatchObject({ state: 'interrupted', reason: 'stopped on request' });
    const iteration = state?.iteration ?? 0;
    expect(stopped.out).toContain(
      `mine stopped with a checkpoint of iteration ${iteration}. Repeat the command to continue.`,
    );
    expect(place.checkpointFile('mine', iteration, 'policy.safetensors').length).toBeGreaterThan(0);

    const resumed = await place.train(RL, ...longer);
    expect(resumed).toMatchObject({ code: 0, err: '' });
    expect(resumed.out).toContain(`resuming mine from iteration ${iteration}`);
    expect(place.metrics('mine').map((line) => line.iteration)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
  });

  it('ends with a checkpoint after a terminal that closes', async () => {
    const name = 'unread';
    const live = place.startTraining(RL, '--set', 'num_iterations=200', '--set', `run_name=${name}`);
    await until('iteration 2', () => !live.isAlive() || (place.state(name)?.iteration ?? 0) >= 2);
    live.stopReading();
    await until('it goes on unread', () => !live.isAlive() || (place.state(name)?.iteration ?? 0) >= 4);
    live.kill('SIGHUP');
    expect(await live.ended).toMatchObject({ code: 130, signal: null });
    const state = place.state(name);
    expect(state).toMatchObject({ state: 'interrupted', reason: 'stopped on request' });
    expect(place.checkpointFile(name, state?.iteration ?? 0, 'policy.safetensors').length).toBeGreaterThan(0);
    expect(place.log(name)).toContain('iteration');
  });

  it('learns nothing from an iteration that waited for its judge when it came', async () => {
    expect(await place.train(RL, ...stubbed(), '--set', 'run_name=whole')).toMatchObject({ code: 0 });

    const live = other.startTraining(RL, ...stubbed());
    await until('iteration 2', () => !live.isAlive() || (other.state('mine')?.iteration ?? 0) >= 2);
    judgeStalls = true;
    await until('it waits', () => !live.isAlive() || other.state('mine')?.state === 'waiting');
    live.kill('SIGINT');
    expect(await live.ended).toMatchObject({ code: 130 });
    const metrics = other.metrics('mine');
    expect(metrics.flatMap((line) => Object.keys(line)).filter((name) => name.startsWith('reward/unscored'))).toEqual(
      [],
    );

    judgeStalls = false;
    expect(await other.train(RL, ...stubbed())).toMatchObject({ code: 0, err: '' });
    const weights = [place.checkpointFile('whole', 9, 'policy.safetensors')];
    weights.push(other.checkpointFile('mine', 9, 'policy.safetensors'));
    expect(weights[1].equals(weights[0])).toBe(true);
  });
});
