/** TRL itself as a trainer, with rewards from the reward server. Skipped where no Python has trl; EDITRL_TEST_PYTHON names another one. */
import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { listening } from '../support/stub_server.js';
import { Place, until, type Live } from './editrl.js';

const python = process.env['EDITRL_TEST_PYTHON'] ?? 'python3';
const probe = spawnSync(python, ['-c', 'import datasets, peft, trl'], { encoding: 'utf8' });
const missing = probe.status === 0 ? null : (probe.stderr?.trim().split('\n').at(-1) ?? `there is no ${python}`);
const why = missing === null ? '' : ` (skipped: ${missing}; EDITRL_TEST_PYTHON names another Python)`;

const MINUTES = 60_000;
const CONFIG = 'experiments/foreign/trl.jsonnet';
const SMALL = {
  num_iterations: 6,
  'parameters.dataset.validation_rows': 32,
  'parameters.grpo.per_device_train_batch_size': 16,
  'parameters.grpo.per_device_eval_batch_size': 32,
  'parameters.grpo.eval_steps': 3,
  'parameters.grpo.save_steps': 2,
  'launch.command': JSON.stringify([python, 'experiments/foreign/trl_grpo.py']),
};

describe.skipIf(missing !== null)(`TRL under editrl${why}`, () => {
  const place = Place.make();
  let server: Live;
  let sets: string[];
  let env: NodeJS.ProcessEnv;

  const run = (name: string) => ['run', CONFIG, '--set', `run_name=${name}`, ...sets];
  const isDone = { code: 0, err: '' };
  /** Metrics that a repeated training has to reach again: not the times and counts of a process. */
  const learned = (name: string) =>
    place.metrics(name).map((line) => {
      const kept = Object.entries(line).filter(([key]) =>
        /^(iteration$|reward\/|policy\/|validation\/|episode\/)/.test(key),
      );
      return Object.fromEntries(kept);
    });

  beforeAll(async () => {
    const start = ['configs/text_start.jsonnet', '--with', 'configs/lib/text_tiny.libsonnet'];
    expect(await place.call(['run', ...start])).toMatchObject(isDone);
    expect((await place.call(['export', 'text_start', '--out', join(place.runs, 'tiny_text')])).code).toBe(0);
    const address = join(place.dir, 'url');
    const reward = ['--config', 'configs/text_plain.jsonnet', '--with', 'configs/lib/text_tiny.libsonnet'];
    server = place.start(['serve', 'rewards', ...reward, '--port', '0', '--url-file', address]);
    await until('the reward server is ready', () => existsSync(address) || !server.isAlive());
    const url = readFileSync(address, 'utf8').trim();
    sets = Object.entries({ ...SMALL, 'parameters.reward.url': JSON.stringify(url) }).flatMap(([key, value]) => [
      '--set',
      `${key}=${value}`,
    ]);
    env = { CUDA_VISIBLE_DEVICES: '', PYTHONDONTWRITEBYTECODE: '1' };
  }, 5 * MINUTES);

  afterAll(async () => {
    server.kill('SIGTERM');
    await server.ended;
    place.remove();
  });

  it(
    'trains, and after SIGKILL and a stop request reaches the same metrics by the same command',
    async () => {
      expect(await place.call(run('untouched'), env)).toMatchObject(isDone);
      expect(place.state('untouched')).toMatchObject({ state: 'finished', iteration: 6 });
      const untouched = learned('untouched');
      expect(untouched.map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6]);
      for (const line of untouched.slice(1)) {
        expect(line['reward/mean']).toBeGreaterThanOrEqual(0);
        expect(line['policy/grad_norm']).toBeGreaterThan(0);
      }
      expect(untouched[6]).toMatchObject({ 'validation/sampled/mean': expect.any(Number) as number });
      expect(place.metrics('untouched')[6]).toMatchObject({ 'reward_server/unscored': 0 });

      const reach = async (live: Live, iteration: number) => {
        await until(
          `iteration ${iteration}`,
          () => !live.isAlive() || (place.state('trl')?.iteration ?? 0) >= iteration,
          3 * MINUTES,
        );
        expect(live.isAlive()).toBe(true);
      };
      const killed = place.start(run('trl'), env);
      await reach(killed, 3);
      killed.kill('SIGKILL');
      await killed.ended;
      const stopped = place.start(run('trl'), env);
      await until('the second attempt', () => place.attempts('trl') === 2);
      await reach(stopped, 4);
      stopped.kill('SIGINT');
      expect(await stopped.ended).toMatchObject({ code: 130 });
      expect(place.log('trl')).toMatch(/starting from \S+checkpoint-2/);
      expect(await place.call(run('trl'), env)).toMatchObject(isDone);
      expect(place.state('trl')).toMatchObject({ state: 'finished', iteration: 6 });
      expect(learned('trl')).toEqual(untouched);
    },
    15 * MINUTES,
  );

  it(
    'leaves answers out that get no score from a server whose replies are malformed half of the time',
    async () => {
      const outcome = { kind: 'scored', value: 1, normalised: 1, parts: {}, reason: null, detail: null };
      const faulty = await listening((request, response) => {
        response.writeHead(200, { 'content-type': 'application/x-ndjson', 'x-editrl-reward': 'digest' });
        createInterface({ input: request })
          .on('line', (line) => {
            const { key } = JSON.parse(line) as { key: string };
            const reply = JSON.stringify({ key, outcome: { ...outcome, normalised: Number(key) % 4 === 0 ? 1 : 0.5 } });
            response.write(`${Number(key) % 2 === 0 ? reply : reply.slice(0, -9)}\n`);
          })
          .on('close', () => response.end());
      });
      const settings = {
        num_iterations: 2,
        'parameters.reward.url': faulty.url,
        'parameters.grpo.eval_strategy': 'no',
      };
      const changes = Object.entries({ ...settings, 'parameters.grpo.eval_on_start': false });
      const sets2 = changes.flatMap(([key, value]) => ['--set', `${key}=${JSON.stringify(value)}`]);
      expect(await place.call([...run('faults'), ...sets2], env)).toMatchObject(isDone);
      await faulty.close();
      expect(place.metrics('faults')).toMatchObject(
        [1, 2].map((iteration) => ({
          iteration,
          // Eight answers of each step have scores, half of them 1 and half 0.5.
          'reward/mean': 0.75,
          'trl/editrl/unscored': 0.5,
          'reward_server/items': 16 * iteration,
          'reward_server/unscored/server_error': 8 * iteration,
          // Five attempts for what gets no score.
          'reward_server/requests': 5 * iteration,
        })),
      );
    },
    10 * MINUTES,
  );

  it(
    'is swept over learning rates and seeds, with a table of the results',
    async () => {
      const { code, out } = await place.call(
        ['sweep', 'experiments/foreign_trl.jsonnet', '--max-parallel', '1', ...sets],
        env,
      );
      expect({ code, out }).toMatchObject({ code: 0 });
      expect(out).toMatch(/^0\.0005 +2 .* baseline$/m);
      expect(out).toMatch(/^0\.002 +2 .* \(2\)$/m);
    },
    15 * MINUTES,
  );
});
