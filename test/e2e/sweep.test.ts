import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Results } from '../../src/run/report/results.js';
import { Place, until, type Live } from './editrl.js';

const EXPERIMENT = 'test/e2e/sweep.jsonnet';
const CELLS = ['high', 'low', 'middle'].flatMap((score) =>
  Array.from({ length: 8 }, (_, i) => `small_sweep__score-${score}__seed-${i + 1}`),
);

let place: Place;
let live: Live[];

beforeEach(() => {
  place = Place.make();
  live = [];
});

afterEach(async () => {
  for (const command of live.filter((one) => one.isAlive())) {
    command.kill('SIGKILL');
    await command.ended;
  }
  place.remove();
});

/** The runs that crash at their next start, once each. */
function crash(...names: readonly string[]): void {
  const folder = join(place.dir, 'crashes');
  mkdirSync(folder, { recursive: true });
  // A file for each: two that crash side by side must not write to one.
  for (const name of names) writeFileSync(join(folder, name), '');
}

/** How often each run was started, counted by the runs themselves. */
function starts(): Record<string, number> {
  const file = join(place.dir, 'starts');
  const counts: Record<string, number> = {};
  if (!existsSync(file)) return counts;
  for (const name of readFileSync(file, 'utf8').split('\n').filter(Boolean)) counts[name] = (counts[name] ?? 0) + 1;
  return counts;
}

function sweep(seconds: number, ...more: readonly string[]): Live {
  const command = place.start(['sweep', EXPERIMENT, '--max-parallel', '2', ...more], {
    SWEEP_STARTS: join(place.dir, 'starts'),
    SWEEP_CRASHES: join(place.dir, 'crashes'),
    SWEEP_SECONDS: String(seconds),
  });
  live.push(command);
  return command;
}

function results(): Results {
  return JSON.parse(readFileSync(join(place.runs, 'small_sweep.results.json'), 'utf8')) as Results;
}

describe('a sweep of 24 runs on 2 slots', () => {
  it('finishes all others, reports the failed run, and repeats only that', async () => {
    const crashing = [CELLS[3], CELLS[9], CELLS[20]];
    crash(...crashing);
    const first = await sweep(0).ended;
    expect(first).toMatchObject({ code: 1, err: '' });
    for (const name of CELLS) expect(place.state(name)?.state).toBe(crashing.includes(name) ? 'failed' : 'finished');
    for (const name of crashing) {
      expect(first.out).toContain(`FAILED   ${name}`);
      expect(first.out).toContain(join(name, 'logs'));
    }
    expect(first.out).toContain('ended with exit code 3');
    expect(first.out).toContain('| ValueError: made to crash');
    // It is told when it happens, not at the end.
    expect(first.out.indexOf(`FAILED   ${CELLS[3]}`)).toBeLessThan(first.out.indexOf(`start    ${CELLS[12]}`));

    const again = await sweep(0, '--failed').ended;
    expect(again).toMatchObject({ code: 0, err: '' });
    expect(starts()).toEqual(Object.fromEntries(CELLS.map((name) => [name, crashing.includes(name) ? 2 : 1])));
    expect(results().cells.map(({ axes, after }) => [axes['score'], after])).toEqual([
      ['high', { mean: 6, std: 0, n: 8 }],
      ['middle', { mean: 5, std: 0, n: 8 }],
      ['low', { mean: 4, std: 0, n: 8 }],
    ]);
    expect(results().cells[0].difference).toEqual({ mean: 2, stderr: 0, n: 8 });
    const nothing = await sweep(0, '--failed').ended;
    expect(nothing).toMatchObject({ code: 0, out: 'No run of small_sweep has failed.\n' });
  });

  it('continues after its scheduler was killed, without doing finished work again', async () => {
    const killed = sweep(0.2, '--retries', '1');
    await until(
      'a third is finished',
      () => CELLS.filter((name) => place.state(name)?.state === 'finished').length >= 8,
    );
    killed.kill('SIGKILL');
    await killed.ended;
    const finished = CELLS.filter((name) => place.state(name)?.state === 'finished');
    const before = starts();
    expect(finished.length).toBeLessThan(24);

    expect(await sweep(0.05).ended).toMatchObject({ code: 0, err: '' });
    const after = starts();
    for (const name of finished) expect(after[name], name).toBe(before[name]);
    expect(Object.keys(after).sort()).toEqual([...CELLS].sort());
    for (const name of CELLS) expect(place.state(name)?.state).toBe('finished');

    const total = Object.values(after).reduce((sum, count) => sum + count, 0);
    expect(await sweep(0).ended).toMatchObject({ code: 0 });
    expect(Object.values(starts()).reduce((sum, count) => sum + count, 0)).toBe(total);
  });

  it('does not let a second scheduler in', async () => {
    const first = sweep(0.5);
    await until('the first has begun', () => Object.keys(starts()).length > 0);
    const second = await sweep(0).ended;
    expect(second.code).toBe(1);
    expect(second.err).toContain('small_sweep is being swept already, by process');
    first.kill('SIGINT');
    expect((await first.ended).code).toBe(130);
  });
});
