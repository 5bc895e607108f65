import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { Place, sleep, until, type Live } from './editrl.js';

const CONFIG = 'experiments/foreign/quadratic.jsonnet';
const SLOW = ['--set', 'launch.env.PAUSE_S="0.05"'];
const NAME = 'quadratic';
const hasPython = spawnSync('python3', ['--version']).status === 0;
const CPU = { CUDA_VISIBLE_DEVICES: '' };

const places: Place[] = [];
afterAll(() => places.forEach((place) => place.remove()));

function newPlace(): Place {
  const place = Place.make();
  places.push(place);
  return place;
}

/** The trainer's processes of one run. */
function trainers(place: Place): number[] {
  return readdirSync('/proc')
    .filter((pid) => /^\d+$/.test(pid))
    .filter((pid) => {
      try {
        return readFileSync(`/proc/${pid}/environ`, 'latin1').includes(`RUN_DIR=${place.run(NAME)}\0`);
      } catch {
        return false; // It has ended, or belongs to somebody else.
      }
    })
    .map(Number);
}

async function reach(place: Place, live: Live, iteration: number): Promise<void> {
  await until(`iteration ${iteration}`, () => !live.isAlive() || (place.state(NAME)?.iteration ?? 0) >= iteration);
  expect(live.isAlive()).toBe(true);
}

function learned(place: Place): { metrics: unknown; checkpoint: string } {
  const checkpoint = join(place.run(NAME), 'trainer/checkpoints', `${NAME}.json`);
  return { metrics: place.metrics(NAME), checkpoint: readFileSync(checkpoint, 'utf8') };
}

// Its reason: the trainer under test is a Python script.
describe.skipIf(!hasPython)("somebody else's trainer", () => {
  it('is stopped, killed and resumed by name, with the result of a run that no one touched', async () => {
    const untouched = newPlace();
    expect(await untouched.call(['run', CONFIG], CPU)).toMatchObject({ code: 0, err: '' });
    expect(untouched.state(NAME)).toMatchObject({ state: 'finished', iteration: 40 });
    expect(untouched.metrics(NAME).map(({ iteration }) => iteration)).toEqual(Array.from({ length: 41 }, (_, i) => i));

    const place = newPlace();
    const killed = place.start(['run', CONFIG, ...SLOW], CPU);
    await reach(place, killed, 12);
    expect(trainers(place)).toHaveLength(2);
    killed.kill('SIGKILL');
    await killed.ended;
    await until('no process of the killed run is left', () => trainers(place).length === 0);

    const stopped = place.start(['run', CONFIG, ...SLOW], CPU);
    await until('the second attempt', () => place.attempts(NAME) === 2);
    await sleep(300);
    stopped.kill('SIGINT');
    expect(await stopped.ended).toMatchObject({ code: 130 });
    expect(place.state(NAME)).toMatchObject({ state: 'interrupted' });

    expect(await place.call(['run', CONFIG], CPU)).toMatchObject({ code: 0, err: '' });
    expect(place.log(NAME)).toMatch(/continuing after iteration \d\d/);
    expect(learned(place)).toEqual(learned(untouched));
    expect((await place.call(['run', CONFIG], CPU)).out).toContain('is finished');
  });

  it('uses the Python client to log, to stop with a checkpoint and to resume', async () => {
    const program = `
import time
from editrl_reward import *
run = editrl_run()
checkpoint = Path(run.checkpoints, f"{run.rank}.txt")
done = int(checkpoint.read_text()) if run.resumed and checkpoint.exists() else -1
print("after", done, flush=True)
for iteration in range(done + 1, run.config["num_iterations"] + 1):
    run.log(iteration, {"reward/mean": iteration * run.parameters["learning_rate"]})
    time.sleep(0.05)
    if run.should_stop():
        checkpoint.write_text(str(iteration))
        raise SystemExit(run.STOPPED)`;
    const command = ['run', CONFIG, '--set', `launch.command=${JSON.stringify(['python3', '-c', program])}`];
    const env = { ...CPU, PYTHONPATH: 'scripts/clients', PYTHONDONTWRITEBYTECODE: '1' };
    const place = newPlace();
    const stopped = place.start(command, env);
    await reach(place, stopped, 5);
    stopped.kill('SIGINT');
    expect(await stopped.ended).toMatchObject({ code: 130 });
    expect(place.state(NAME)).toMatchObject({ state: 'interrupted' });
    expect(await place.call(command, env)).toMatchObject({ code: 0, err: '' });
    expect(place.state(NAME)).toMatchObject({ state: 'finished', iteration: 40 });
    expect(place.log(NAME)).toMatch(/after \d/);
    expect(place.metrics(NAME).map(({ iteration }) => iteration)).toEqual(Array.from({ length: 41 }, (_, i) => i));
  });

  it('is swept over its settings and seeds, and what is finished is not done again', async () => {
    const place = newPlace();
    const experiment = ['sweep', 'experiments/foreign_trainer.jsonnet'];
    const first = await place.call(experiment, CPU);
    expect(first).toMatchObject({ code: 0, err: '' });
    const runs = ['0.05', '0.2'].flatMap((lr) => [1, 2].map((seed) => `foreign_trainer__lr-${lr}__seed-${seed}`));
    for (const run of runs) expect(place.state(run)).toMatchObject({ state: 'finished', iteration: 40 });
    expect(first.out).toMatch(/\n0\.05 +2 .* baseline\n0\.2 +2 .* \(2\)\n/);
    expect((await place.call(experiment, CPU)).code).toBe(0);
    for (const run of runs) expect(place.attempts(run)).toBe(1);
  });

  it('is stopped by name out of a sweep that continues', async () => {
    const place = newPlace();
    const live = place.start(['sweep', 'experiments/foreign_trainer.jsonnet'], { ...CPU, PAUSE_S: '0.1' });
    const [stopped, ...others] = ['0.05', '0.2'].flatMap((lr) =>
      [1, 2].map((seed) => `foreign_trainer__lr-${lr}__seed-${seed}`),
    );
    await until('the first cell', () => !live.isAlive() || (place.state(stopped)?.iteration ?? 0) >= 3);
    expect(await place.call(['stop', stopped], CPU)).toMatchObject({
      code: 0,
      out: expect.stringMatching(/interrupted at iteration \d+\/40; continue with `editrl resume \S+`/) as string,
    });
    expect(live.isAlive()).toBe(true);
    await live.ended;
    expect(place.state(stopped)).toMatchObject({ state: 'interrupted', reason: 'stopped on request' });
    for (const run of others) expect(place.state(run)).toMatchObject({ state: 'finished', iteration: 40 });
    expect((await place.call(['sweep', 'experiments/foreign_trainer.jsonnet'], CPU)).code).toBe(0);
    expect([stopped, ...others].map((run) => place.attempts(run))).toEqual([2, 1, 1, 1]);
  });

  it('reports that it was killed, on its own terminal and in its state', async () => {
    const place = newPlace();
    const live = place.start(['run', CONFIG], { ...CPU, PAUSE_S: '0.1' });
    await until('its first iterations', () => !live.isAlive() || (place.state(NAME)?.iteration ?? 0) >= 2);
    expect(await place.call(['stop', NAME, '--now'], CPU)).toMatchObject({
      code: 0,
      out: expect.stringContaining('killed at iteration') as string,
    });
    const { code, out } = await live.ended;
    expect(code).toBe(130);
    expect(out).toContain(`${NAME} stopped (killed with \`editrl stop --now\`). Repeat the command to continue.`);
    expect(place.state(NAME)).toMatchObject({ state: 'interrupted', reason: 'killed with `editrl stop --now`' });
  });

  it('fails with the last lines of the rank that failed', async () => {
    const place = newPlace();
    const failing = `launch.command=["python3","-c","import sys; print('out of luck'); sys.exit(3)"]`;
    const { code, err } = await place.call(['run', CONFIG, '--set', failing], CPU);
    expect(code).toBe(1);
    expect(err).toMatch(/rank [01] of 2 ended with exit code 3[^]*out of luck/);
    expect(place.state(NAME)).toMatchObject({ state: 'failed' });
  });
});
