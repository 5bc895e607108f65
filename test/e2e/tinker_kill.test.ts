/**
 * A run at a training server, of which trainer, server or both are killed at six moments: between any two requests, or while one is answered. What
 * the server had saved is all that it has afterwards.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import type { State } from '../train/policies/tinker/bigrams.js';
import { StubTinker, type StubRequest } from '../train/policies/tinker/stub_tinker.js';
import { Place, type Live } from './editrl.js';

const SMALL = ['configs/lib/text_tiny.libsonnet', 'test/e2e/recipes/text_small.libsonnet'];
const OVERLAYS = SMALL.flatMap((file) => ['--with', file]);
const VICTIMS = ['trainer', 'server', 'both'] as const;
const KILLS = 6;
const SAVED_EVERY = 2;
/** Each kill has as many iterations to itself as it may take back. */
const ITERATIONS = SAVED_EVERY * KILLS + 2;
/** Prompts of an iteration, which may all be under way when a run is killed. */
const PROMPTS = 4;
/** An iteration takes about as many requests. */
const REQUESTS = 30;
const NAME = 'killed';

let place: Place;
let stub: StubTinker;
let untouched: StubTinker;
let tokenizer: string;

beforeAll(async () => {
  place = Place.make(null);
  expect(await place.call(['run', 'configs/text_start.jsonnet', ...OVERLAYS])).toMatchObject({ code: 0, err: '' });
  tokenizer = join(place.run('text_start'), 'checkpoints/000008');
  const { model } = JSON.parse(readFileSync(join(tokenizer, 'tokenizer.json'), 'utf8')) as { model: { vocab: object } };
  const options = { vocabulary: Object.keys(model.vocab).length, dialect: 'proto', mostModels: 99 } as const;
  [stub, untouched] = [await new StubTinker(options).listen(), await new StubTinker(options).listen()];
});
afterAll(async () => {
  await Promise.all([stub.close(), untouched.close()]);
  place.remove();
});

function args(name: string, { url }: StubTinker): string[] {
  const sets = [
    `run_name=${name}`,
    'policy.model=null',
    `policy.tokenizer=${tokenizer}`,
    `policy.trainer={"type": "tinker", "base_url": "${url}", "base_model": "base"}`,
    'reward.terms=[]',
    'reward.mode=word_overlap',
    `num_iterations=${ITERATIONS}`,
    `checkpoint.save_every_n_iterations=${SAVED_EVERY}`,
    'validation.every_n_iterations=null',
    'validation.prompts=4',
    'optimizer.learning_rate=0.05',
  ];
  return ['run', 'configs/text_plain.jsonnet', ...OVERLAYS, ...sets.flatMap((set) => ['--set', set])];
}

/** What the server has saved for the checkpoint of an iteration. */
function savedState(name: string, iteration: number, server: StubTinker): State {
  const record = place.checkpointFile(name, iteration, 'remote.json').toString('utf8');
  return server.saved.get((JSON.parse(record) as { path: string }).path)!;
}

const reached = (): number => place.metrics(NAME).at(-1)?.iteration ?? 0;

/** Kills at a request behind an iteration: before it is answered, or once it is done and nobody hears of it. */
async function killAt(
  live: Live,
  who: (typeof VICTIMS)[number],
  iteration: number,
  wait: number,
  isDone: boolean,
): Promise<void> {
  let left = wait;
  const fallen = new Promise<void>((resolve) => {
    stub.fault = () => {
      if (reached() < iteration || left-- > 0) return null;
      stub.fault = () => ({ kind: 'cut' });
      if (who !== 'server') live.kill('SIGKILL');
      setImmediate(resolve);
      return { kind: isDone ? 'lost' : 'cut' };
    };
  });
  await Promise.race([fallen, live.ended]);
  if (who !== 'trainer') await stub.killed();
  stub.fault = () => null;
}

/** What is sampled, whoever samples it. */
function question({ body }: StubRequest): string {
  const { prompt, sampling_params } = JSON.parse(body.toString('utf8')) as Record<string, unknown>;
  return JSON.stringify([prompt, sampling_params]);
}

const questions = (requests: readonly StubRequest[]): string[] =>
  requests.flatMap((one) => (one.path === '/asample' && !one.body.includes('prompt_logprobs') ? [question(one)] : []));

/** Differs at every start of the tests; the seed is in the name of the test. */
const seed = Date.now() % 100_000;

it(`comes to the same weights through ${KILLS} kills, and takes no step twice (seed ${seed})`, async () => {
  const random = new RandomStream(seed, 'tinker kill');
  expect(await place.call(args('whole', untouched))).toMatchObject({ code: 0, err: '' });
  let before = 0;
  const goesOn = (out: string, what: string): void => {
    const begun = /resuming \w+ from iteration (\d+)/.exec(out);
    // Nothing was kept yet of a run that begins anew.
    expect(before - Number(begun?.[1] ?? 0), what).toBeLessThanOrEqual(SAVED_EVERY);
    before = reached();
  };
  for (let kill = 0; kill < KILLS; kill++) {
    const who = VICTIMS[kill % VICTIMS.length];
    const live = place.start(args(NAME, stub));
    const from = SAVED_EVERY * kill + 1 + random.integer(SAVED_EVERY);
    await killAt(live, who, from, random.integer(REQUESTS), random.uniform() < 0.5);
    const ended = await live.ended;
    const what = `kill ${kill}, of the ${who}`;
    if (who === 'server') {
      expect(ended.code, `${what}: ${ended.err}`).toBe(3);
      expect(ended.err, what).toContain('The run resumes from its last checkpoint');
    } else expect(ended.signal, `${what}: ${ended.err}`).toBe('SIGKILL');
    goesOn(ended.out, what);
  }
  const last = await place.call(args(NAME, stub));
  expect(last).toMatchObject({ code: 0, err: '' });
  goesOn(last.out, 'the last attempt');

  const [straight, killed] = [savedState('whole', ITERATIONS, untouched), savedState(NAME, ITERATIONS, stub)];
  expect(killed.steps).toBe(ITERATIONS);
  expect(killed.weights).toEqual(straight.weights);
  expect(killed.first).toEqual(straight.first);
  expect(place.metrics(NAME).map(({ iteration }) => iteration)).toEqual(
    place.metrics('whole').map(({ iteration }) => iteration),
  );
  // What had been stored was not asked for again; what was under way at a kill was.
  // Every start asks the questions of the probe, before it makes the model that is trained.
  const trained = untouched.requests.findLastIndex(({ path }) => path === '/create_model');
  const probe = new Set(questions(untouched.requests.slice(0, trained)));
  const [once, asked] = [untouched, stub].map(({ requests }) => questions(requests).filter((one) => !probe.has(one)));
  expect(new Set(asked)).toEqual(new Set(once));
  expect(asked.length - once.length).toBeLessThanOrEqual(KILLS * PROMPTS);
});
