import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import { startStubJudge, stubModel, type StubJudge } from '../rewards/judge/stub_judge.js';
import { childrenOf, isRunning, Place, RL, sleep, START, until, type Live } from './editrl.js';
import { scoreByPictures } from './scorer.js';

let places: Place[];
let judge: StubJudge;

beforeAll(async () => {
  places = [];
  judge = await startStubJudge(scoreByPictures);
});

afterAll(async () => {
  await judge.close();
  for (const place of places) place.remove();
});

function newPlace(): Place {
  const place = Place.make(inject('template'));
  places.push(place);
  return place;
}

interface Case {
  readonly name: string;
  readonly run: string;
  readonly iterations: number;
  readonly kills: number;
  readonly embedded: boolean;
  readonly more: () => readonly string[];
}

const cases: readonly Case[] = [
  {
    name: 'GRPO',
    run: RL,
    iterations: 10,
    kills: 4,
    embedded: false,
    more: () => ['--set', `reward.endpoint=${judge.url}`, '--set', `reward.model=${stubModel}`],
  },
  {
    name: 'SFT, whose judge is the embedded one',
    run: START,
    iterations: 40,
    kills: 3,
    embedded: true,
    more: () => [],
  },
];

/** Waits for a moment that nobody chose, shows that a live run is hit there, and returns how many processes it had started. */
async function killSomewhere(
  place: Place,
  { run, iterations, kills }: Case,
  live: Live,
  kill: number,
): Promise<number> {
  await until(
    'this attempt has begun',
    () => !live.isAlive() || (place.attempts(run) > kill && place.state(run)?.state === 'running'),
  );
  // Each kill has a stretch of the iterations to itself, so that all of them find the run at work.
  const stretch = iterations / (kills + 1);
  const target = Math.floor(stretch * kill + stretch * random.uniform());
  await until(`iteration ${target}`, () => !live.isAlive() || (place.state(run)?.iteration ?? 0) >= target);
  await sleep(random.uniform() * 150);
  const started = childrenOf(live.pid);
  const state = place.state(run);
  expect(live.isAlive()).toBe(true);
  live.kill('SIGKILL');
  expect(await live.ended).toMatchObject({ signal: 'SIGKILL' });
  expect(state?.state).toBe('running');
  expect(place.state(run)).toMatchObject({ state: 'running' });
  await until('everything that a killed run started has ended', () => !started.some(isRunning));
  return started.length;
}

/** Differs at every start of the tests; the seed is in the name of the test. */
const seed = Date.now() % 100_000;
const random = new RandomStream(seed, 'kill');

describe(`SIGKILL at random moments (seed ${seed})`, () => {
  it.each(cases)('leaves $name with the weights of a run that nobody killed', async (one) => {
    const { run, iterations } = one;
    const more = [...one.more(), '--set', `num_iterations=${iterations}`, '--set', `run_name=again`];
    const untouched = newPlace();
    expect(await untouched.train(run, ...more)).toMatchObject({ code: 0, err: '' });

    const killed = newPlace();
    const places = { killed, untouched };
    const renamed = { ...one, run: 'again' };
    let started = 0;
    for (let kill = 0; kill < one.kills; kill++) {
      started += await killSomewhere(killed, renamed, killed.startTraining(run, ...more), kill);
    }
    // The orphans that were looked for could have been there.
    expect(started).toBeGreaterThan(one.kills * 2 - (one.embedded ? 0 : 1));
    const last = await killed.train(run, ...more);
    expect(last).toMatchObject({ code: 0, err: '' });

    for (const file of ['policy.safetensors', 'optimizer.safetensors', 'trainer.json']) {
      const [a, b] = Object.values(places).map((place) => place.checkpointFile('again', iterations, file));
      expect(a.equals(b), file).toBe(true);
    }
    const everyIteration = Array.from({ length: iterations + 1 }, (_, i) => i);
    expect(killed.metrics('again').map(({ iteration }) => iteration)).toEqual(everyIteration);
    expect(killed.metrics('again').map(withoutTimes)).toEqual(untouched.metrics('again').map(withoutTimes));
    // A test of the test: the weights did change on the way.
    const first = untouched.metrics('again').find(({ iteration }) => iteration === 1);
    expect(first?.['policy/grad_norm']).toBeGreaterThan(0);
  });
});

function withoutTimes(metrics: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(metrics).filter(([name]) => !name.startsWith('time/') && name !== 'tokens/s'),
  );
}
