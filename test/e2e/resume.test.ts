import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest';
import { Place, RL, until } from './editrl.js';

interface RecordOfFork {
  readonly fork?: unknown;
  readonly settings: { readonly num_iterations: number };
  readonly attempts: ReadonlyArray<{ readonly allowed_changes?: unknown }>;
}

describe('editrl resume, status, stop, logs', () => {
  let place: Place;
  beforeAll(() => {
    place = Place.make(inject('template'));
  });
  afterAll(() => place.remove());

  const record = (name: string): RecordOfFork =>
    JSON.parse(readFileSync(join(place.run(name), 'run.json'), 'utf8')) as RecordOfFork;

  it('continues a run by its name alone, to the same end as one that never stopped', async () => {
    // What is packed follows from the settings alone.
    const longer = ['--set', 'num_iterations=20', '--set', 'rollout.packed_weights=all'];
    expect(await place.train(RL, ...longer, '--set', 'run_name=whole')).toMatchObject({ code: 0 });
    const live = place.startTraining(RL, ...longer, '--set', 'run_name=mine');
    await until('iteration 3', () => !live.isAlive() || (place.state('mine')?.iteration ?? 0) >= 3);

    const logs = place.start(['logs', 'mine', '-f']);
    const shown = await place.call(['status', 'mine', '--json']);
    expect(JSON.parse(shown.out)).toMatchObject({ runs: [{ state: 'running', num_iterations: 20, reason: null }] });

    const stopped = await place.call(['stop', 'mine']);
    expect(stopped).toMatchObject({ code: 0, err: '' });
    expect(stopped.out).toMatch(/^mine: interrupted at iteration \d+\/20; continue with `editrl resume mine`\n$/m);
    expect(await live.ended).toMatchObject({ code: 130 });
    const followed = await logs.ended;
    expect(followed).toMatchObject({ code: 0 });
    expect(followed.out).toMatch(/iteration  3\/20/);
    expect(followed.err).toContain('mine: interrupted');

    const resumed = await place.call(['resume', 'mine']);
    expect(resumed).toMatchObject({ code: 0, err: '' });
    expect(resumed.out).toMatch(/resuming mine from iteration \d+/);
    expect(place.metrics('mine').map(({ iteration }) => iteration)).toEqual(Array.from({ length: 21 }, (_, i) => i));
    const [ours, theirs] = ['mine', 'whole'].map((name) => place.checkpointFile(name, 20, 'policy.safetensors'));
    expect(ours.equals(theirs)).toBe(true);
  });

  it('forks from a checkpoint, and the fork that changes nothing ends as the run did', async () => {
    const kept = place.state(RL)?.iteration ?? 0;
    const missing = await place.call(['fork', `${RL}@1`, '--as', 'fork']);
    expect(missing.code).toBe(1);
    const there = /Checkpoints: ([\d, ]+)\./.exec(missing.err)?.[1].split(', ').map(Number) ?? [];
    expect(there).toContain(kept);
    expect(existsSync(place.run('fork'))).toBe(false);

    const from = String(there[0]);
    const forked = await place.call(['fork', `${RL}@${from}`, '--as', 'fork', '--set', 'num_iterations=8']);
    expect(forked).toMatchObject({ code: 0, err: '' });
    expect(forked.out).toContain(`resuming fork from iteration ${from}`);
    expect(record('fork')).toMatchObject({ fork: { run: RL, iteration: there[0] }, settings: { num_iterations: 8 } });
    expect(place.metrics('fork').map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
    expect(place.metrics(RL)).toHaveLength(7);
  });

  it('shows what decides the result and changed, and continues only where it is allowed', async () => {
    const change = ['--set', 'num_iterations=7', '--set', 'algorithm.kl_coeff=0.01'];
    const refused = await place.call(['resume', RL, ...change]);
    expect(refused.code).toBe(2);
    expect(refused.err).toMatch(/\n {4}algorithm\.kl_coeff: .* -> 0\.01\n/);
    expect(refused.err).toContain('--allow-changes algorithm.kl_coeff');
    for (const again of ['resume', 'run']) {
      const allowed =
        again === 'resume'
          ? await place.call(['resume', RL, ...change, '--allow-changes', 'algorithm.kl_coeff'])
          : await place.train(RL, ...change, '--allow-changes', 'algorithm.kl_coeff');
      expect(allowed).toMatchObject({ code: 0, err: '' });
    }
    expect(record(RL).attempts.map((attempt) => attempt.allowed_changes)).toContainEqual([
      { key: 'algorithm.kl_coeff', before: expect.anything() as unknown, after: 0.01 },
    ]);
  });

  it('kills with --now, and leaves a run that says so and no lock', async () => {
    const live = place.startTraining(RL, '--set', 'run_name=killed', '--set', 'num_iterations=40');
    await until('iteration 2', () => !live.isAlive() || (place.state('killed')?.iteration ?? 0) >= 2);
    const killed = await place.call(['stop', 'killed', '--now']);
    expect(killed).toMatchObject({ code: 0, err: '' });
    await live.ended;
    const shown = await place.call(['status', 'killed', '--json']);
    expect(JSON.parse(shown.out)).toMatchObject({ runs: [{ state: 'interrupted', where: null }] });
    expect(existsSync(join(place.run('killed'), 'lock.json'))).toBe(false);
  });
});
