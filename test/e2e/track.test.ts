import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { KEY, StubWandb } from '../run/track/wandb/stub.js';
import { configFile, Place, RL, SMALL, type Ended } from './editrl.js';

describe('tracking', () => {
  let place: Place;
  const wandb = new StubWandb();
  beforeAll(async () => {
    place = Place.make(inject('template'));
    await wandb.listen();
  });
  afterAll(async () => {
    await wandb.close();
    place.remove();
  });

  const train = (env: NodeJS.ProcessEnv, ...sets: readonly string[]): Promise<Ended> =>
    place.call(['run', configFile(RL), ...SMALL, ...['run_name=mine', ...sets].flatMap((one) => ['--set', one])], env);

  it('forwards a run to W&B with its metrics, log, config and images', async () => {
    const ended = await train(wandb.env, 'track.wandb={"project":"edits"}');
    expect(ended).toMatchObject({ code: 0, err: '' });
    expect(ended.out).toContain(`W&B: ${wandb.url}/team/edits/runs/mine`);
    expect(wandb.wrong).toEqual([]);
    const { complete, exitcode, config, files, uploads } = wandb.run('mine');
    expect({ complete, exitcode }).toEqual({ complete: true, exitcode: 0 });
    expect(config['num_iterations']).toEqual({ value: 6 });
    expect(wandb.history('mine').map(({ _step }) => _step)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(wandb.history('mine').map((row) => row['reward/mean'])).toEqual(
      place.metrics('mine').map((line) => line['reward/mean']),
    );
    expect(files['output.log'].join('\n')).toContain('starting mine');
    const pictures = [...uploads.keys()].filter((name) => name.endsWith('.png'));
    expect(pictures.length).toBeGreaterThan(0);
    expect(wandb.history('mine').at(5)).toMatchObject({ 'episodes/edited': { _type: 'images/separated', count: 16 } });
    expect(ended.out + ended.err + place.log('mine')).not.toContain(KEY);
  });
});
