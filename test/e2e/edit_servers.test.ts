/** Runs of edit_response whose pictures a render server makes: with faults, killed and resumed, scored again, and refused before they begin. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { RandomStream } from '../../src/core/random.js';
import type { RescoreSummary } from '../../src/train/rescore/rescore_summary.js';
import { StubRender, type RenderFault } from '../train/environments/render_server/stub_render.js';
import { Place, until, type Ended, type Live } from './editrl.js';

const renderFaults: readonly RenderFault[] = [
  { kind: 'status', status: 500 },
  { kind: 'status', status: 503 },
  { kind: 'cut' },
  { kind: 'bytes', bytes: Buffer.from('no picture') },
];

/** With a third of its replies faulted by `faulted`, where it is given. */
async function start(faulted?: () => boolean): Promise<StubRender> {
  const stub = await StubRender.start();
  let at = 0;
  stub.fault = () => (faulted?.() === true ? renderFaults[at++ % renderFaults.length] : null);
  return stub;
}

let place: Place;
beforeAll(() => void (place = Place.make()));
afterAll(() => place.remove());

describe("a run of edit_response with environment.type 'render_server'", () => {
  const config = [
    'configs/edit_response.jsonnet',
    '--with',
    'configs/lib/edit_tiny.libsonnet',
    '--with',
    'test/e2e/recipes/edit_served.libsonnet',
    '--with',
    'test/e2e/recipes/edit_rendered.libsonnet',
  ];
  const [whole, killed, refused] = ['whole', 'killed', 'refused'];
  let stub: StubRender;
  afterEach(() => stub.close());

  const run = (name: string): Live =>
    place.start(['run', ...config, '--set', `run_name=${name}`], { APP__IMAGES: stub.url });
  const lines = (name: string): string[] =>
    readFileSync(join(place.run(name), 'pictures.jsonl'), 'utf8')
      .split('\n')
      .slice(0, -1);

  it('trains on them, with 30 % of the replies faulted', async () => {
    const random = new RandomStream('faults', 2);
    let faulted = 0;
    stub = await start(() => {
      const wrong = random.uniform() < 0.3;
      if (wrong) faulted++;
      return wrong;
    });
    expect(await run(whole).ended).toMatchObject({ code: 0, err: '' });
    expect(faulted).toBeGreaterThan(10);
    const last = place.metrics(whole).at(-1);
    expect(last).toMatchObject({ iteration: 4 });
    expect(last?.['reward/mean']).toBeGreaterThan(0);
    expect(Object.keys(last ?? {}).filter((name) => name.startsWith('reward/unscored'))).toEqual([]);
    // 4 iterations of 16, and held-out prompts before and after.
    expect(lines(whole).length).toBeGreaterThan(4 * 16);
    const { settings } = JSON.parse(readFileSync(join(place.run(whole), 'run.json'), 'utf8')) as {
      settings: { environment: { type: string } };
    };
    expect(settings.environment.type).toBe('render_server');
  });

  it('killed and resumed asks for nothing again, and ends as one that never stopped', async () => {
    stub = await start();
    const live = run(killed);
    await until(
      'pictures of iteration 3 are stored',
      () => !live.isAlive() || (place.state(killed)?.iteration ?? 0) >= 2,
    );
    live.kill('SIGKILL');
    await live.ended;
    await stub.idle();
    const kept = lines(killed);
    const before = stub.asked.length;
    const resumed = await place.call(['resume', killed], { APP__IMAGES: stub.url });
    expect(resumed).toMatchObject({ code: 0, err: '' });
    const all = lines(killed);
    expect(all).toHaveLength(lines(whole).length);
    expect(all.slice(0, kept.length)).toEqual(kept);
    // One more is drawn where nothing after the checkpoint was stored.
    expect(stub.asked.length - before).toBeLessThanOrEqual(all.length - kept.length + 1);
    expect(place.checkpointFile(killed, 4, 'policy.safetensors')).toEqual(
      place.checkpointFile(whole, 4, 'policy.safetensors'),
    );
  });

  it('is scored again from its stored images, without a server', async () => {
    stub = await start();
    const scored: Ended = await place.call(['rescore', whole, '--json']);
    expect(scored).toMatchObject({ code: 0, err: '' });
    expect(stub.asked).toEqual([]);
    const summary = JSON.parse(scored.out) as RescoreSummary;
    expect(summary).toMatchObject({ differ: 0, not_rescored: {}, compared: summary.episodes });
    expect(summary.episodes).toBe(lines(whole).length);
  });

  it('does not begin if the server has no such model', async () => {
    stub = await StubRender.start({ width: 24 });
    const refusal = 'its model stub-editor expects hidden states of width 24, got 16';
    const checked = await place.call(['check', ...config, '--deep'], { APP__IMAGES: stub.url });
    expect(checked.out + checked.err).toContain(refusal);
    const ended = await run(refused).ended;
    expect(ended.code).toBe(3);
    expect(ended.err).toContain(refusal);
    expect(place.metrics(refused)).toEqual([]);
  });
});
