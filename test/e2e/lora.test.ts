import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Place, RL, START, until } from './editrl.js';

describe('a run with adapters', () => {
  let place: Place;
  beforeAll(() => {
    place = Place.make(inject('template'));
  });
  afterAll(() => place.remove());

  const adapters = ['--set', 'policy.lora={"rank": 2, "alpha": 4, "targets": ["q_proj", "down_proj"]}'];
  // A reward that tells answers apart from the first iteration on.
  const lora = [...adapters, '--set', 'reward.mode=jpeg_size', '--set', 'num_iterations=20'];
  const file = 'adapter_model.safetensors';

  it('stopped and resumed ends as one that never stopped, with the adapters alone in its checkpoints', async () => {
    expect(await place.train(RL, ...lora, '--set', 'run_name=whole')).toMatchObject({ code: 0 });
    const live = place.startTraining(RL, ...lora, '--set', 'run_name=mine');
    await until('iteration 3', () => !live.isAlive() || (place.state('mine')?.iteration ?? 0) >= 3);
    await place.call(['stop', 'mine', '--now']);
    await live.ended;
    expect(place.state('mine')?.iteration).toBeLessThan(20);
    expect(await place.call(['resume', 'mine'])).toMatchObject({ code: 0, err: '' });
    const [ours, theirs] = ['mine', 'whole'].map((name) => place.checkpointFile(name, 20, file));
    expect(ours.equals(theirs)).toBe(true);
    expect(ours.equals(place.checkpointFile('whole', 18, file))).toBe(false);
    const folder = join(place.run('mine'), 'checkpoints', '000020');
    expect(readdirSync(folder)).not.toContain('policy.safetensors');
    expect(existsSync(join(folder, 'adapter_config.json'))).toBe(true);
  });

  it('can be what another run starts from', async () => {
    const from = ['--set', `policy.model=${join(place.run('whole'), 'checkpoints', '000020')}`];
    const next = await place.train(RL, ...from, '--set', 'num_iterations=2', '--set', 'run_name=next');
    expect(next).toMatchObject({ code: 0 });
    expect(place.checkpointFile('next', 2, 'policy.safetensors').length).toBeGreaterThan(0);
  });

  it('refuses layers that the model has not, naming those that it has, and adapters over random weights', async () => {
    const unknown = await place.train(RL, '--set', 'policy.lora={"targets": ["query"]}', '--set', 'run_name=other');
    expect(unknown.code).not.toBe(0);
    expect(unknown.err).toContain("'query' matches no linear layer");
    expect(unknown.err).toContain('q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj');
    const random = await place.train(START, ...adapters, '--set', 'run_name=other');
    expect(random.err).toContain(
      'found adapters over random weights (policy.init); allowed: with policy.model, or null',
    );
    expect(random.code).toBe(2);
  });
});
