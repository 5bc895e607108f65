/** image_edit_tokens at a training server, as commands: image tokens are ids like any other there, and nothing holds the sampler to whole pictures. */
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { StubTinker } from '../train/policies/tinker/stub_tinker.js';
import { Place, RL } from './editrl.js';

let place: Place;
let stub: StubTinker;

beforeAll(async () => {
  place = Place.make(inject('template'));
  const { vocab_size: vocabulary } = JSON.parse(place.checkpointFile('sft_s', 12, 'config.json').toString('utf8')) as {
    vocab_size: number;
  };
  stub = await new StubTinker({ vocabulary, dialect: 'proto' }).listen();
});
afterAll(async () => {
  await stub.close();
  place.remove();
});

const served = (name: string, ...more: readonly string[]): string[] =>
  [
    `run_name=${name}`,
    'policy.model=null',
    'policy.init=null',
    `policy.trainer={"type": "tinker", "base_url": "${stub.url}", "base_model": "base"}`,
    'policy.emu3_use_logit_processor=false',
    'policy.separate_language_and_vision_vocabs=false',
    'optimizer.learning_rate=0.3',
    ...more,
  ].flatMap((set) => ['--set', set]);

const OVERLAYS = ['configs/lib/tiny.libsonnet', 'test/e2e/small.libsonnet'].flatMap((file) => ['--with', file]);

describe('image_edit_tokens at a training server', () => {
  it('learns labeled edits', async () => {
    const ended = await place.call(['run', 'configs/sft_s.jsonnet', ...OVERLAYS, ...served('sft_served')]);
    expect(ended).toMatchObject({ code: 0, err: '' });
    const losses = place.metrics('sft_served').flatMap((line) => {
      const loss = line['validation/loss'];
      return typeof loss === 'number' ? [loss] : [];
    });
    expect(losses.at(-1)).toBeLessThan(losses[0] - 0.5);
  });

  it('scores answers without an image 0, counts them, and raises an alarm', async () => {
    const ended = await place.call([
      'run',
      `configs/${RL}.jsonnet`,
      ...OVERLAYS,
      ...served('rl_served', 'num_iterations=1', 'reward.mode=jpeg_size'),
    ]);
    expect(ended).toMatchObject({ code: 0 });
    const line = place.metrics('rl_served').find((one) => 'hack/no_picture' in one)!;
    expect(line['hack/no_picture']).toBe(1);
    expect(line['reward/zero_by_rule']).toBe(1);
    expect(line['alarm/no_picture']).toBe(1);
    expect(ended.out).toContain(
      'hack alarm: the share of answers without an image is 1.000 (track.alarms.limits.no_picture.max is 0.5)',
    );
  });
});
