import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { childrenOf, isRunning, Place, START, until, type Live } from './editrl.js';

let place: Place;
beforeAll(() => {
  place = Place.make(inject('template'));
});
afterAll(() => place.remove());

const ITERATIONS = 80;
const named = (name: string, iterations: number): string[] => [
  ...['--set', `num_iterations=${iterations}`, '--set', `run_name=${name}`],
];
/** Long enough to be killed in the midst of it, on a machine that others keep busy. */
const long = (name: string): string[] => named(name, ITERATIONS);
/** For runs that nobody waits for. */
const endless = (name: string): string[] => named(name, 10_000);

/** Rank 0 of a run. */
function worker(name: string): number {
  return (JSON.parse(readFileSync(`${place.run(name)}/workers.json`, 'utf8')) as { pids: number[] }).pids[0];
}

async function underWay(live: Live, name: string, iteration = 5): Promise<readonly number[]> {
  await until(
    `iteration ${iteration} of ${name}`,
    () => !live.isAlive() || (place.state(name)?.iteration ?? 0) >= iteration,
  );
  return childrenOf(live.pid);
}

describe('a worker that is killed', () => {
  it('fails the run with its rank, its signal and its last lines, and the same command continues', async () => {
    const live = place.startTraining(START, ...long('killed'));
    const started = await underWay(live, 'killed');
    process.kill(worker('killed'), 'SIGKILL');
    const { code, err } = await live.ended;
    expect(code).toBe(1);
    expect(err).toMatch(/^editrl: killed: rank 0 was ended by SIGKILL\nIts last lines:\n( {2}\| .*\n)+/);
    expect(err).toContain('  | starting killed (task image_edit_tokens, algorithm sft) in ');
    expect(place.log('killed')).toContain(`iteration  5/${ITERATIONS}`);
    expect(place.state('killed')).toMatchObject({ state: 'failed', reason: 'rank 0 was ended by SIGKILL' });
    await until('everything has ended', () => !started.some(isRunning));
    expect(await place.train(START, ...long('killed'))).toMatchObject({ code: 0, err: '' });
  });

  it('is started again from its checkpoint as often as launch.max_restarts says', async () => {
    const live = place.startTraining(START, ...long('again'), '--set', 'launch.max_restarts=1');
    await underWay(live, 'again');
    process.kill(worker('again'), 'SIGKILL');
    const { code, out, err } = await live.ended;
    expect({ code, err }).toEqual({ code: 0, err: '' });
    expect(out).toContain('restarting again from its last checkpoint (1 of 1)');
    // Where it was killed is a matter of moments; it has written a checkpoint every fourth iteration.
    const [, from] = /resuming again from iteration (\d+)/.exec(out) ?? [];
    expect(Number(from) % 4).toBe(0);
    expect(Number(from)).toBeGreaterThan(0);
    expect(place.attempts('again')).toBe(2);
    const weights = ['killed', 'again'].map((name) => place.checkpointFile(name, ITERATIONS, 'policy.safetensors'));
    expect(weights[1].equals(weights[0])).toBe(true);
  });
});

describe('a worker without memory', () => {
  const advice = "Give it a larger heap, as launch.env: {NODE_OPTIONS: '--max-old-space-size=8192'} (MiB)";

  it('of our own is reported to have filled its heap, and the run continues once it has a larger one', async () => {
    const { code, err } = await place.train(
      START,
      ...long('starved'),
      '--set',
      'launch.env.NODE_OPTIONS=--max-old-space-size=18',
    );
    expect(code).toBe(1);
    expect(err).toMatch(
      /^editrl: starved: rank 0 was ended by SIGABRT: the heap of Node's V8 was full \(FATAL ERROR: .*heap out of memory\)\n/,
    );
    expect(err).toContain(advice);
    expect(await place.train(START, ...long('starved'))).toMatchObject({ code: 0, err: '' });
  });
});

describe('a worker that does not answer', () => {
  it('is ended as hung', async () => {
    const live = place.startTraining(START, ...endless('hung'), '--set', 'launch.heartbeat_timeout_s=3');
    await underWay(live, 'hung');
    const pid = worker('hung');
    process.kill(pid, 'SIGSTOP');
    const { code, err } = await live.ended;
    expect(code).toBe(1);
    expect(err).toContain('rank 0 hung: no sign of life for 3 s (launch.heartbeat_timeout_s)');
    expect(place.state('hung')).toMatchObject({ state: 'failed' });
    expect(isRunning(pid)).toBe(false);
  });
});

describe('SIGTERM', () => {
  it('to rank 0 checkpoints and ends it', async () => {
    const live = place.startTraining(START, ...endless('asked'));
    await underWay(live, 'asked');
    process.kill(worker('asked'), 'SIGTERM');
    expect(await live.ended).toMatchObject({ code: 130, err: '' });
    expect(place.state('asked')).toMatchObject({ state: 'interrupted', reason: 'stopped on request' });
  });
});

describe('two processes', () => {
  const two = (name: string): string[] => [
    ...long(name),
    ...['launch.processes=2', 'optimizer.per_device_batch_size=4'].flatMap((set) => ['--set', set]),
  ];

  it('train one run, and the death of one ends both', async () => {
    const live = place.startTraining(START, ...two('pair'));
    await underWay(live, 'pair');
    const [first, second] = childrenOf(live.pid)
      .map((pid) => ({ pid, env: readFileSync(`/proc/${pid}/environ`, 'utf8').split('\0') }))
      .filter(({ env }) => env.includes('WORLD_SIZE=2'))
      .sort((a, b) => Number(a.env.includes('RANK=1')) - Number(b.env.includes('RANK=1')));
    process.kill(second.pid, 'SIGKILL');
    const { code, err } = await live.ended;
    expect(code).toBe(1);
    expect(err).toContain('rank 1 of 2 was ended by SIGKILL');
    expect(place.state('pair')).toMatchObject({ state: 'failed', reason: 'rank 1 of 2 was ended by SIGKILL' });
    expect(isRunning(first.pid)).toBe(false);
    expect(await place.train(START, ...two('pair'))).toMatchObject({ code: 0, err: '' });
  });
});
