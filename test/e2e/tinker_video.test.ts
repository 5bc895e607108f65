/** video_actions at a training server, as commands: frames go there as images, and what the server makes of pictures is looked at first. */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { hasFfmpeg } from '../data/video/odd_files.js';
import { StubTinker } from '../engines/tinker/stub_tinker.js';
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

  it('learns from rewards with KL, of answers to questions with pictures', async () => {
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

  it('goes on where it ended, to what a run comes to that does not stop', async () => {
    const first = await served('run', 'in_parts', 'num_iterations=2');
    expect(first).toMatchObject({ code: 0, err: '' });
    const more = await served('run', 'in_parts', 'num_iterations=4');
    expect(more).toMatchObject({ code: 0, err: '' });
    const lineage = (name: string): unknown =>
      (JSON.parse(place.checkpointFile(name, 4, 'remote.json').toString('utf8')) as { lineage: string }).lineage;
    expect(lineage('in_parts')).toBe(lineage('seen'));
  });

  it('refuses clips, and a server that takes words alone, each in one message', async () => {
    const clip = await served('run', 'refused', 'data.frames.as=video');
    expect(clip).toMatchObject({ code: 2 });
    expect(clip.err).toContain("data.frames.as: found 'video' with policy.trainer 'tinker'");
    const { vocabulary } = stub.options;
    const wordy = await new StubTinker({ vocabulary, dialect: 'proto' }).listen();
    const trainer = `policy.trainer={"type": "tinker", "base_url": "${wordy.url}", "base_model": "base"}`;
    const ended = await served('run', 'wordy', trainer);
    await wordy.close();
    expect(ended.code).not.toBe(0);
    expect(ended.err).toContain('the server does not carry pictures');
    expect(ended.err.match(/carry pictures/g)).toHaveLength(1);
  });

  it('refuses edit_response, and says why', async () => {
    const sets = ['policy.trainer={"type": "tinker", "base_model": "base"}'].flatMap((set) => ['--set', set]);
    const ended = await place.call(['run', 'configs/edit_response.jsonnet', ...sets], ENV);
    expect(ended.code).toBe(2);
    expect(ended.err).toContain("policy.trainer.type: found 'tinker', and pictures are made from the hidden states");
  });
});
