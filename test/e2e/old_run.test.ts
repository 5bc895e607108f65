/**
 * Run directories that released versions have left (scripts/fixtures/run_directory.ts makes one, with what the version itself made of
 * it when it went on). Where the program rounds differently on purpose, what it makes of them is recorded again: with RMSNorm as one operator no
 * number is more than 4e-6 from 0.1.0's. EDITRL_PROGRAM names another built main.js than this one's.
 */
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  call,
  continued,
  numerics,
  PARENTS,
  reported,
  rescored,
  RUN,
  RUNS,
  unpack,
  type Expected,
} from '../../scripts/fixtures/old_run.js';
import type { RunRecord } from '../../src/run/record.js';
import { ROOT } from './editrl.js';

const FIXTURES = join(import.meta.dirname, 'fixtures');
const PROGRAM = process.env['EDITRL_PROGRAM'] ?? join(ROOT, 'dist/src/cli/main.js');
const RELEASED = readdirSync(FIXTURES)
  .filter((name) => name.endsWith('.json'))
  .map((name) => JSON.parse(readFileSync(join(FIXTURES, name), 'utf8')) as Expected);

describe.each(RELEASED)('a run that editrl $version left', (expected) => {
  const { interrupted, version } = expected;
  const exact = expected.numerics === numerics();
  let place: string;
  let copy: string;
  beforeAll(() => {
    place = mkdtempSync(join(tmpdir(), 'editrl-old-'));
    unpack(join(FIXTURES, `run_${version}.tar.gz`), place);
    copy = mkdtempSync(join(tmpdir(), 'editrl-old-'));
    cpSync(place, copy, { recursive: true });
  });
  afterAll(() => {
    for (const folder of [place, copy]) rmSync(folder, { recursive: true, force: true });
  });

  /** Every number as it is recorded; where other instructions compute, close to it. */
  const like = (value: unknown): unknown => {
    if (typeof value === 'number' && !exact) return expect.closeTo(value, 4);
    if (Array.isArray(value)) return value.map(like);
    if (typeof value !== 'object' || value === null) return value;
    return Object.fromEntries(Object.entries(value).map(([key, each]) => [key, like(each)]));
  };
  const recordOf = (folder: string, run: string): RunRecord =>
    JSON.parse(readFileSync(join(folder, RUNS, run, 'run.json'), 'utf8')) as RunRecord;

  it('is reported, and its records score as they did', () => {
    const last = expected.metrics.length - 1;
    expect(reported(PROGRAM, place)).toMatchObject({
      state: 'interrupted',
      iteration: interrupted,
      num_iterations: last,
    });
    const rows = (expected.rescored['rows'] as { iteration: number }[]).filter(
      ({ iteration }) => iteration <= interrupted,
    );
    const again = rescored(PROGRAM, place);
    expect(again).toMatchObject({ not_rescored: {}, differ: 0, correlation: 1 });
    // These are the machine's that recorded them, to the last bit.
    expect(again['rows']).toEqual(rows);
  });

  it(`goes on ${exact ? 'to the same numbers, bit for bit' : `to close numbers (the bits are of ${expected.numerics})`}`, () => {
    const outcome = continued(PROGRAM, place);
    expect(outcome.metrics).toHaveLength(expected.metrics.length);
    for (const [iteration, line] of expected.metrics.entries()) {
      // What was recorded before the interruption stays, whatever computes now.
      expect(outcome.metrics[iteration]).toMatchObject(iteration <= interrupted ? line : (like(line) as object));
    }
    if (exact) expect(outcome.weights).toBe(expected.weights);
    expect(outcome.report).toMatchObject(like(expected.report) as object);
    expect(outcome.rescored).toMatchObject(like(expected.rescored) as object);
    expect(recordOf(place, RUN)).toMatchObject({
      hash: recordOf(copy, RUN).hash,
      parents: recordOf(copy, RUN).parents,
    });
  });

  it('keeps to the checkpoints that it began with when its parents train on, and misses one that is gone', () => {
    const trained = mkdtempSync(join(tmpdir(), 'editrl-old-'));
    try {
      cpSync(copy, trained, { recursive: true });
      const start = PARENTS[1];
      const { num_iterations: ended } = recordOf(copy, start).settings as { num_iterations: number };
      call(PROGRAM, trained, ['resume', start, '--exp-dir', RUNS, '--set', `num_iterations=${ended + 3}`]);
      const pinned = join(trained, RUNS, start, 'checkpoints', String(ended).padStart(6, '0'));
      const aside = join(trained, 'aside');
      renameSync(pinned, aside);
      const resume = ['resume', RUN, '--exp-dir', RUNS];
      expect(() => call(PROGRAM, trained, resume)).toThrow(`parents.${start}: "checkpoint of iteration ${ended}`);
      renameSync(aside, pinned);
      expect(continued(PROGRAM, trained).metrics).toMatchObject(like(expected.metrics) as object[]);
    } finally {
      rmSync(trained, { recursive: true, force: true });
    }
  });

  it('has parents that another run starts from, by the configs of today', () => {
    const before = PARENTS.map((parent) => recordOf(copy, parent));
    const file = (path: string): string => join(ROOT, path);
    const overlays = ['configs/lib/tiny.libsonnet', 'scripts/fixtures/run_directory.libsonnet'];
    call(PROGRAM, copy, [
      ...['run', file(`configs/${RUN}.jsonnet`), ...overlays.flatMap((path) => ['--with', file(path)])],
      ...['--set', 'run_name=another', '--set', 'num_iterations=1'],
    ]);
    expect(PARENTS.map((parent) => recordOf(copy, parent))).toEqual(before);
    const [, first] = readFileSync(join(copy, RUNS, 'another/metrics.jsonl'), 'utf8')
      .trimEnd()
      .split('\n');
    const { 'reward/mean': reward, 'policy/loss': loss } = expected.metrics[1];
    const found = JSON.parse(first) as Record<string, number>;
    expect(found).toMatchObject(like({ 'reward/mean': reward }) as object);
    // Configs of today leave padding out of products, which gives other last bits.
    expect(found['policy/loss']).toBeCloseTo(Number(loss), 5);
    expect(existsSync(join(copy, RUNS, 'another/checkpoints/000001'))).toBe(true);
  });
});
