import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Place } from '../editrl.js';
import { recipeContract, SHORT } from './contract.js';
import { likesShortAnswers } from './reward_server.js';

const CONFIG = 'configs/text_plain.jsonnet';
const SMALL = ['configs/lib/text_tiny.libsonnet', 'test/e2e/recipes/text_small.libsonnet'];
const ADAPTERS = 'test/e2e/recipes/text_adapters.libsonnet';

/** Its model is a run that is trained first. */
recipeContract('text_answers', {
  makePlace: () => Place.make(null),
  config: CONFIG,
  overlays: SMALL,
  startJudge: likesShortAnswers,
  otherReward: 'word_overlap',
  answersInWords: true,
});

describe.skipIf(SHORT)('text_answers on prompts of somebody else', () => {
  let place: Place;
  beforeAll(() => {
    place = Place.make(null);
  });
  afterAll(() => place.remove());

  const overlays = SMALL.flatMap((file) => ['--with', file]);
  const alone = ['--set', 'reward.mode=word_overlap', '--set', 'reward.terms=[]', '--set', 'num_iterations=2'];

  it('learns adapters over a folder, which alone are in its checkpoints', async () => {
    const trained = await place.call(['run', 'configs/text_start.jsonnet', ...overlays, '--set', 'run_name=model']);
    expect(trained).toMatchObject({ code: 0, err: '' });
    const [last] = readdirSync(join(place.run('model'), 'checkpoints'))
      .sort()
      .reverse();
    const folder = join(place.run('model'), 'checkpoints', last);
    const sets = ['--set', `policy.model=${folder}`, '--set', 'run_name=over'];
    const more = ['--with', ADAPTERS, ...alone, ...sets];
    expect(await place.call(['run', CONFIG, ...overlays, ...more])).toMatchObject({ code: 0, err: '' });
    const files = readdirSync(join(place.run('over'), 'checkpoints', '000002'));
    expect(files).toContain('adapter_model.safetensors');
    expect(files).not.toContain('policy.safetensors');
    const lines = readFileSync(join(place.run('over'), 'episodes/validation_000002.jsonl'), 'utf8').split('\n');
    expect(JSON.parse(lines[0])).toMatchObject({
      sample: 'validation.jsonl:1',
      text: expect.any(String) as string,
      expected: expect.stringMatching(/^a \w+ \w+ (above|below|left of|right of) a /) as string,
    });
  });
});
