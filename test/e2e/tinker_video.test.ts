/** video_actions at a training server, as commands: frames go there as images, and what the server makes of pictures is looked at first. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hasFfmpeg } from '../data/video/odd_files.js';
import { StubTinker } from '../train/policies/tinker/stub_tinker.js';
import { Place, type Ended } from './editrl.js';

const SMALL = ['configs/lib/video_tiny.libsonnet', 'test/e2e/recipes/video_small.libsonnet'];
const ENV = { APP__REWARD_FUNCTION_API_BASE: 'http://127.0.0.1:9' };
/** Side of what becomes one token: patches of 4, merged by two. */
const SIDE = 8;

describe.skipIf(!hasFfmpeg)('video_actions at a training server (skipped without ffmpeg)', () => {
  let place: Place;
  let stub: StubTinker;
  /** A run whose checkpoint says how its model sees. */
  let described: string;

  beforeAll(async () => {
    place = Place.make(null);
    const overlays = SMALL.flatMap((file) => ['--with', file]);
    const start = await place.call(
      ['run', 'configs/video_sight.jsonnet', ...overlays, '--set', 'num_iterations=1'],
      ENV,
    );
    expect(start).toMatchObject({ code: 0, err: '' });
    described = join(place.run('video_sight'), 'checkpoints/000001');
    const { model } = JSON.parse(readFileSync(join(described, 'tokenizer.json'), 'utf8')) as {
      model: { vocab: object };
    };
    const vocabulary = Object.keys(model.vocab).length;
    stub = await new StubTinker({ vocabulary, dialect: 'proto', pictureSide: SIDE }).listen();
  });
  afterAll(async () => {
    await stub.close();
    place.remove();
  });

  const served = (verb: string, name: string, ...more: readonly string[]): Promise<Ended> =>
    place.call(
      [
        verb,
        'configs/video_actions.jsonnet',
        ...SMALL.flatMap((file) => ['--with', file]),
        ...[
          `run_name=${name}`,
          'policy.model=null',
          'policy.init=null',
          `policy.tokenizer=${described}`,
          `policy.trainer={"type": "tinker", "base_url": "${stub.url}", "base_model": "base"}`,
          'policy.train.mm_vision=false',
          'policy.model_context_size=400',
          'data.frames.as=images',
          'reward.terms=[]',
          'reward.mode=word_overlap',
          'optimizer.learning_rate=0.3',
          ...more,
        ].flatMap((set) => ['--set', set]),
      ],
      ENV,
    );

  it('learns from rewards with KL, of answers to questions with images', async () => {
    const ended = await served('run', 'seen');
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(ended.out).toContain('the training server passed its probe');
    const rewards = place.metrics('seen').flatMap((line) => {
      const reward = line['reward/mean'];
      return typeof reward === 'number' ? [reward] : [];
    });
    expect(rewards.at(-1)).toBeGreaterThan(rewards[0]);
    const asked = stub.requests.filter(({ path, body }) => path === '/asample' && body.includes('"image"'));
    expect(asked.length).toBeGreaterThan(0);
    expect(stub.models.size).toBe(0);
  });
});
