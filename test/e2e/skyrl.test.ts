/**
 * text_answers at a real SkyRL server on a CPU, as commands. Left out unless EDITRL_SKYRL names a Python environment that has SkyRL
 * (docs/guide/gpus-and-servers.md).
 */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { skyrlEnvironment, SkyrlServer } from '../support/skyrl.js';
import { childrenOf, isRunning, Place, sleep } from './editrl.js';

const REASON = skyrlEnvironment === undefined ? ' (left out: EDITRL_SKYRL names no environment)' : '';
const SMALL = ['configs/lib/text_tiny.libsonnet', 'test/e2e/recipes/text_small.libsonnet'];
/** A batch of a size that was not there before is compiled for up to a minute. */
const LONG = 900_000;
const overlays = SMALL.flatMap((file) => ['--with', file]);

describe.skipIf(skyrlEnvironment === undefined)(`text_answers at SkyRL${REASON}`, () => {
  let place: Place;
  let base: string;
  let server: SkyrlServer;
  beforeAll(async () => {
    place = Place.make(null);
    expect(await place.call(['run', 'configs/text_start.jsonnet', ...overlays])).toMatchObject({ code: 0 });
    base = join(place.dir, 'base');
    const exported = ['export', 'text_start', '--exp-dir', place.runs, '--format', 'merged', '--out', base];
    expect(await place.call(exported)).toMatchObject({ code: 0 });
    server = await SkyrlServer.start(base, join(place.dir, 'skyrl'));
  }, LONG);
  afterAll(() => {
    server.kill();
    place.remove();
  });

  const args = (name: string, ...more: readonly string[]): string[] => [
    'run',
    'configs/text_plain.jsonnet',
    ...overlays,
    ...[
      `run_name=${name}`,
      'reward.terms=[]',
      'reward.mode=word_overlap',
      'num_iterations=6',
      'checkpoint.save_every_n_iterations=2',
      'optimizer.learning_rate=0.01',
      ...more,
    ].flatMap((set) => ['--set', set]),
  ];
  const served = (name: string): string[] =>
    args(
      name,
      'policy.model=null',
      `policy.tokenizer=${base}`,
      `policy.trainer={"type": "tinker", "base_url": "${server.url}", "base_model": "${base}", "lora": {"rank": 4}}`,
    );
  const hasReached = (name: string, iteration: number): boolean =>
    existsSync(join(place.run(name), 'metrics.jsonl')) &&
    place.metrics(name).some((line) => Number(line['iteration']) >= iteration);

  it(
    'learns, can be exported, and is where a run of this program starts from',
    async () => {
      const ended = await place.call(served('whole'));
      expect(ended).toMatchObject({ code: 0, err: '' });
      expect(ended.out).toContain('passed its probe');
      const out = join(place.dir, 'exported');
      const exported = ['export', 'whole', '--exp-dir', place.runs, '--format', 'merged', '--out', out];
      expect(await place.call(exported)).toMatchObject({ code: 0, err: '' });
      const from = `policy.model=${join(place.run('whole'), 'checkpoints/000006')}`;
      expect(await place.call(args('from', from, 'num_iterations=1'))).toMatchObject({ code: 0, err: '' });
      const rewardOf = (name: string, iteration: number): number => {
        const line = place.metrics(name).find((one) => one['iteration'] === iteration);
        return Number(line?.['validation/greedy/mean']);
      };
      expect(Math.abs(rewardOf('from', 0) - rewardOf('whole', 6))).toBeLessThan(1e-6);
    },
    LONG,
  );

  it(
    'is trained at a server of its own, which finds what it had saved when it is started anew',
    async () => {
      const serve = { python: skyrlEnvironment, mode: 'jax' };
      const trainer = JSON.stringify({ type: 'tinker', base_model: base, lora: { rank: 4 }, serve });
      const own = args('own', 'policy.model=null', `policy.tokenizer=${base}`, `policy.trainer=${trainer}`);
      const live = place.start(own);
      while (!hasReached('own', 3) && live.isAlive()) await sleep(50);
      const started = childrenOf(live.pid);
      live.kill('SIGKILL');
      const { out } = await live.ended;
      expect(out).toContain('passed its probe');
      expect(out).not.toContain('without the key');
      while (started.some(isRunning)) await sleep(50);
      const resumed = await place.call(['resume', 'own']);
      expect(resumed).toMatchObject({ code: 0 });
      expect(resumed.out).toContain('resuming own from iteration 2');
      expect(resumed.out).toContain('passed its probe');
      expect(await place.call(['evaluate', place.run('own')])).toMatchObject({ code: 0 });
    },
    LONG,
  );

  it.each(['trainer', 'server'] as const)(
    'goes on from its last checkpoint after its %s was killed',
    async (which) => {
      const name = `killed_${which}`;
      const live = place.start(served(name));
      while (!hasReached(name, 3) && live.isAlive()) await sleep(50);
      if (which === 'trainer') live.kill('SIGKILL');
      else {
        server.kill();
        server = await SkyrlServer.start(base, join(place.dir, 'skyrl'), Number(new URL(server.url).port));
      }
      const ended = await live.ended;
      if (which === 'server') {
        expect(ended.code).toBe(3);
        expect(ended.err).toMatch(/the server has lost the model|the session has expired/);
        expect(ended.err).toContain('run the same command again');
      }
      const resumed = await place.call(['resume', name]);
      expect(resumed).toMatchObject({ code: 0 });
      expect(resumed.out).toContain(`resuming ${name} from iteration 2`);
    },
    LONG,
  );
});
