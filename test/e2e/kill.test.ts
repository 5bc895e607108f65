import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import { startStubJudge, stubModel, type StubJudge } from '../rewards/judge/stub_judge.js';
import { childrenOf, isRunning, Place, RL, sleep, until, type Live } from './editrl.js';
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

const ITERATIONS = 10;
const KILLS = 4;
const NAME = 'again';

/** Waits for a moment that nobody chose, shows that a live run is hit there, and returns how many processes it had started. */
async function killSomewhere(place: Place, live: Live, kill: number): Promise<number> {
  await until(
    'this attempt has begun',
    () => !live.isAlive() || (place.attempts(NAME) > kill && place.state(NAME)?.state === 'running'),
  );
  // Each kill has a stretch of the iterations to itself, so that all of them find the run at work.
  const stretch = ITERATIONS / (KILLS + 1);
  const target = Math.floor(stretch * kill + stretch * random.uniform());
  await until(`iteration ${target}`, () => !live.isAlive() || (place.state(NAME)?.iteration ?? 0) >= target);
  await sleep(random.uniform() * 150);
  const started = childrenOf(live.pid);
  const state = place.state(NAME);
  expect(live.isAlive()).toBe(true);
  live.kill('SIGKILL');
  expect(await live.ended).toMatchObject({ signal: 'SIGKILL' });
  expect(state?.state).toBe('running');
  expect(place.state(NAME)).toMatchObject({ state: 'running' });
  await until('everything that a killed run started has ended', () => !started.some(isRunning));
  return started.length;
}

/** Differs at every start of the tests; the seed is in the name of the test. */
const seed = Date.now() % 100_000;
const random = new RandomStream(seed, 'kill');

describe(`SIGKILL at random moments (seed ${seed})`, () => {
  it('leaves the weights of a run that no one killed', async () => {
    const sets = [
      `reward.endpoint=${judge.url}`,
      `reward.model=${stubModel}`,
      `num_iterations=${ITERATIONS}`,
      `run_name=${NAME}`,
    ];
    const more = sets.flatMap((set) => ['--set', set]);
    const untouched = newPlace();
    expect(await untouched.train(RL, ...more)).toMatchObject({ code: 0, err: '' });

    const killed = newPlace();
    let started = 0;
    for (let kill = 0; kill < KILLS; kill++) {
      started += await killSomewhere(killed, killed.startTraining(RL, ...more), kill);
    }
    // The orphans that were looked for could have been there.
    expect(started).toBeGreaterThanOrEqual(KILLS);
    const last = await killed.train(RL, ...more);
    expect(last).toMatchObject({ code: 0, err: '' });

    for (const file of ['policy.safetensors', 'optimizer.safetensors', 'trainer.json']) {
      const [a, b] = [killed, untouched].map((place) => place.checkpointFile(NAME, ITERATIONS, file));
      expect(a.equals(b), file).toBe(true);
    }
    const everyIteration = Array.from({ length: ITERATIONS + 1 }, (_, i) => i);
    expect(killed.metrics(NAME).map(({ iteration }) => iteration)).toEqual(everyIteration);
    expect(killed.metrics(NAME).map(withoutTimes)).toEqual(untouched.metrics(NAME).map(withoutTimes));
    // A test of the test: the weights did change on the way.
    const first = untouched.metrics(NAME).find(({ iteration }) => iteration === 1);
    expect(first?.['policy/grad_norm']).toBeGreaterThan(0);
  });
});

function withoutTimes(metrics: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(metrics).filter(([name]) => !name.startsWith('time/') && name !== 'tokens/s'),
  );
}
