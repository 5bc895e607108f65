/** A run of ip_adapter that several reward servers score, which read its words and ask a judge. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { spawn } from 'node:child_process';
import { afterAll, expect, it } from 'vitest';
import { Place, ROOT, until } from './editrl.js';

const place = Place.make();
const ends: (() => Promise<unknown>)[] = [];
afterAll(async () => {
  await Promise.all(ends.map((end) => end()));
  place.remove();
});

it('is scored by a pool of servers with weights of its own', async () => {
  const judge = place.start(['serve', 'judge', '--port', '0', '--json']);
  ends.push(() => (judge.kill('SIGTERM'), judge.ended));
  await until('the judge listens', () => judge.out().includes('\n'));
  const { url } = JSON.parse(judge.out()) as { readonly url: string };

  const folder = join(place.dir, 'servers');
  const main = process.env['EDITRL_MAIN'] ?? join(ROOT, 'dist/src/cli/main.js');
  const args = [
    'scripts/run_server.sh',
    '--terms',
    'jpeg_size,align_quality',
    '--endpoint',
    url,
    '--model',
    'editrl-rule-judge',
  ];
  const env = {
    ...process.env,
    COUNT: '2',
    OUT: folder,
    EDITRL: `${process.execPath} ${main}`,
    CUDA_VISIBLE_DEVICES: '',
  };
  const script = spawn('bash', args, { cwd: ROOT, env, stdio: 'ignore' });
  const ended = new Promise((done) => script.once('close', done));
  ends.push(() => (script.kill('SIGTERM'), ended));
  await until('the servers listen', () => existsSync(join(folder, 'urls.txt')));
  const endpoint = readFileSync(join(folder, 'urls.txt'), 'utf8').trim().split('\n');
  expect(endpoint).toHaveLength(2);

  const terms = [{ name: 'remote', weight: 1, endpoint, terms: { jpeg_size: 0.4, align_quality: 0.6 } }];
  const { code, err } = await place.call(
    [
      ...['run', 'configs/ip_adapter.jsonnet', '--with', 'configs/lib/ip_adapter_tiny.libsonnet'],
      ...['--with', 'test/e2e/recipes/ip_adapter_small.libsonnet'],
      ...['--set', `reward.terms=${JSON.stringify(terms)}`, '--set', 'num_iterations=2'],
    ],
    { APP__REWARD_FUNCTION_API_BASE: endpoint[0] },
  );
  expect(code, err).toBe(0);
  const [, last] = place.metrics('ip_adapter').filter(({ iteration }) => iteration > 0);
  const [size, quality, mean] = ['jpeg_size/normalised', 'align_quality/normalised', 'mean'].map((name) =>
    Number(last[`reward/${name}`]),
  );
  expect(size).toBeGreaterThan(0);
  expect(mean).toBeCloseTo(0.4 * size + 0.6 * quality, 6);
  expect(Object.keys(last).filter((name) => name.startsWith('reward/unscored'))).toEqual([]);
});
