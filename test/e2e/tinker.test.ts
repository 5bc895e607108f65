/** text_answers at a training server, as commands: it learns, goes on after it was killed, and refuses what the server cannot be told. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StubTinker } from '../train/policies/tinker/stub_tinker.js';
import { Place, until } from './editrl.js';

const CONFIG = 'configs/text_plain.jsonnet';
const SMALL = ['configs/lib/text_tiny.libsonnet', 'test/e2e/recipes/text_small.libsonnet'];
const ITERATIONS = 8;
const KEY = { TINKER_API_KEY: 'the-key-of-it' };

let place: Place;
let stub: StubTinker;
/** A run whose checkpoint has the tokenizer. */
let tokenizer: string;

beforeAll(async () => {
  place = Place.make(null);
  const overlays = SMALL.flatMap((file) => ['--with', file]);
  const start = await place.call(['run', 'configs/text_start.jsonnet', ...overlays]);
  expect(start).toMatchObject({ code: 0, err: '' });
  tokenizer = join(place.run('text_start'), 'checkpoints/000008');
  const { model } = JSON.parse(readFileSync(join(tokenizer, 'tokenizer.json'), 'utf8')) as { model: { vocab: object } };
  const vocabulary = Object.keys(model.vocab).length;
  stub = await new StubTinker({ vocabulary, dialect: 'proto', apiKey: KEY.TINKER_API_KEY }).listen();
});
afterAll(async () => {
  await stub.close();
  place.remove();
});

const args = (name: string, ...more: readonly string[]): string[] => [
  'run',
  CONFIG,
  ...SMALL.flatMap((file) => ['--with', file]),
  ...[
    `run_name=${name}`,
    'policy.model=null',
    `policy.tokenizer=${tokenizer}`,
    `policy.trainer={"type": "tinker", "base_url": "${stub.url}", "base_model": "base"}`,
    'reward.terms=[]',
    'reward.mode=word_overlap',
    `num_iterations=${ITERATIONS}`,
    'optimizer.learning_rate=0.3',
    'rollout.episodes_per_iteration=64',
    'validation.prompts=16',
    ...more,
  ].flatMap((set) => ['--set', set]),
];

const recordOf = (name: string, iteration: number): { path: string; lineage: string } =>
  JSON.parse(place.checkpointFile(name, iteration, 'remote.json').toString('utf8')) as {
    path: string;
    lineage: string;
  };

describe('text_answers at a training server', () => {
  it('learns, says where it is trained, and lets go of its adapter', async () => {
    const ended = await place.call(args('whole'), KEY);
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(ended.out).toContain('trains adapters of rank 32 over base');
    expect(ended.out).toContain('the training server passed its probe (sum, ');
    const rewards = place.metrics('whole').flatMap((line) => {
      const reward = line['reward/mean'];
      return typeof reward === 'number' ? [reward] : [];
    });
    expect(rewards[rewards.length - 1]).toBeGreaterThan(rewards[0]);
    expect(stub.models.size).toBe(0);
    // The server keeps what the run's checkpoints need, and nothing of those that were removed.
    const kept = readdirSync(join(place.run('whole'), 'checkpoints')).map(Number);
    expect(kept.length).toBeLessThan(ITERATIONS / 2 + 1);
    expect([...stub.saved.keys()]).toEqual(kept.map((iteration) => recordOf('whole', iteration).path));
    expect(readFileSync(join(place.run('whole'), 'run.json'), 'utf8')).not.toContain(KEY.TINKER_API_KEY);
  });

  it('killed in the middle continues from its last checkpoint to the same steps, with the answers that are stored', async () => {
    let [steps, models] = [0, 0];
    stub.fault = ({ path }) => {
      if (path === '/create_model') models += 1;
      // Three are scratch models, by which the server is looked at.
      if (path === '/optim_step' && models > 3) steps += 1;
      // Iteration 6 is sampled, and waits for its step.
      return steps > 5 && path === '/optim_step' ? { kind: 'stall' } : null;
    };
    const live = place.start(args('killed'), KEY);
    await until('iteration 6 waits', () => steps > 5 || !live.isAlive());
    live.kill('SIGKILL');
    await live.ended;
    stub.fault = () => null;
    const seen = stub.requests.length;
    const resumed = await place.call(['resume', 'killed'], KEY);
    expect(resumed).toMatchObject({ code: 0, err: '' });
    expect(resumed.out).toContain('resuming killed from iteration 4');
    expect(recordOf('killed', ITERATIONS).lineage).toBe(recordOf('whole', ITERATIONS).lineage);
    expect(recordOf('killed', ITERATIONS).path).not.toBe(recordOf('whole', ITERATIONS).path);
    const asked = stub.requests.slice(seen);
    const opened = asked.flatMap(({ path }, i) => (path === '/create_model' ? [i] : []));
    // The probe takes three models, and one is trained.
    expect(opened).toHaveLength(4);
    // Without those that ask the base model for log-probabilities.
    const sampled = asked
      .slice(opened[3])
      .filter(({ path, body }) => path === '/asample' && !body.includes('prompt_logprobs'));
    // Iterations 5 and 6 were sampled before: 7 and 8 are left, with 16 prompts each, and two evaluations of 16 prompts, sampled and greedy.
    expect(sampled).toHaveLength(2 * 16 + 2 * 32);
  });

  it('samples an iteration while the one before trains, and killed in the middle comes to the same weights', async () => {
    const ended = await place.call(args('ahead', 'rollout.ahead=1'), KEY);
    expect(ended).toMatchObject({ code: 0, err: '' });
    const lines = place.metrics('ahead').filter((line) => 'policy/loss' in line);
    expect(lines.map((line) => line['policy/steps_behind'] ?? null)).toEqual([null, ...lines.slice(1).map(() => 1)]);
    for (const line of lines) expect(line['policy/importance_ess']).toBeGreaterThan(0.3);
    expect(lines[0]['policy/importance_ess']).toBeCloseTo(1, 6);
    expect(lines.at(-1)!['policy/importance_ess']).toBeLessThan(1);
    expect(lines.at(-1)!['reward/mean']).toBeGreaterThan(Number(lines[0]['reward/mean']));

    let [steps, models] = [0, 0];
    stub.fault = ({ path }) => {
      if (path === '/create_model') models += 1;
      if (path === '/optim_step' && models > 3) steps += 1;
      return steps > 5 && path === '/optim_step' ? { kind: 'stall' } : null;
    };
    const live = place.start(args('killed_ahead', 'rollout.ahead=1'), KEY);
    await until('iteration 6 waits', () => steps > 5 || !live.isAlive());
    live.kill('SIGKILL');
    await live.ended;
    stub.fault = () => null;
    const resumed = await place.call(['resume', 'killed_ahead'], KEY);
    expect(resumed).toMatchObject({ code: 0, err: '' });
    expect(resumed.out).toContain('resuming killed_ahead from iteration 4');
    expect(recordOf('killed_ahead', ITERATIONS).lineage).toBe(recordOf('ahead', ITERATIONS).lineage);
    expect(recordOf('ahead', ITERATIONS).lineage).not.toBe(recordOf('whole', ITERATIONS).lineage);
  });

  it('counts the tokens that it asks for', async () => {
    const [seen, before] = [stub.requests.length, stub.sampledTokens];
    expect(await place.call(args('counted'), KEY)).toMatchObject({ code: 0 });

    // What the server was asked for, by its own count.
    const asked = stub.requests.slice(seen).filter(({ path }) => path === '/asample');
    const prompts = asked.map(
      ({ body }) => JSON.parse(body.toString('utf8')) as { prompt: { chunks: { tokens: number[] }[] } },
    );
    const length = prompts.reduce(
      (sum, { prompt }) => sum + prompt.chunks.reduce((all, { tokens }) => all + tokens.length, 0),
      0,
    );
    const line = place.metrics('counted').at(-1)!;
    expect(line['spent/prefill_tokens']).toBeGreaterThanOrEqual(length);
    expect(line['spent/sampled_tokens']).toBe(stub.sampledTokens - before);
    expect((await place.call(['status', place.run('counted')])).out).toMatch(
      /tokens prefilled, .* sampled, .* trained/,
    );
    expect((await place.call(['report', place.run('counted')])).out).toMatch(/spent +[\d,]+ tokens prefilled/);
  });

  it('learns labeled answers', async () => {
    const sets = [
      'run_name=labelled',
      'policy.init=null',
      `policy.tokenizer=${tokenizer}`,
      `policy.trainer={"type": "tinker", "base_url": "${stub.url}", "base_model": "base", "reduction": "sum"}`,
      'optimizer.learning_rate=0.3',
    ].flatMap((set) => ['--set', set]);
    const overlays = SMALL.flatMap((file) => ['--with', file]);
    expect(await place.call(['run', 'configs/text_start.jsonnet', ...overlays, ...sets], KEY)).toMatchObject({
      code: 0,
    });
    const losses = place.metrics('labelled').flatMap((line) => {
      const loss = line['validation/loss'];
      return typeof loss === 'number' ? [loss] : [];
    });
    expect(losses.length).toBeGreaterThan(1);
    expect(losses[losses.length - 1]).toBeLessThan(losses[0] - 0.5);
  });

  it('reports a wrong key in one message', async () => {
    const ended = await place.call(args('locked'), { TINKER_API_KEY: 'of-a-different-door' });
    expect(ended.code).not.toBe(0);
    expect(ended.err).toContain('the server rejects the API key');
    expect(ended.err + ended.out).not.toContain('of-a-different-door');
  });
});
