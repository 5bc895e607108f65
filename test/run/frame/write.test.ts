import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { asyncBufferFromFile, parquetReadObjects } from 'hyparquet';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../../src/cli/main.js';
import { COLUMNS } from '../../../src/run/frame/tables.js';
import { frameFolder, writeFrame } from '../../../src/run/frame/write.js';
import { findReported } from '../../../src/run/report/find.js';
import { capture, RunFolder } from '../../cli/run_directory.js';
import { experiment, full } from './framed.js';

let folder: RunFolder;
beforeEach(() => {
  folder = new RunFolder();
});
afterEach(() => {
  vi.restoreAllMocks();
  folder.remove();
});

async function read(path: string): Promise<Record<string, unknown>[]> {
  return parquetReadObjects({ file: await asyncBufferFromFile(path) });
}

function frame(name: string) {
  const found = findReported(name, folder.dir);
  return writeFrame(found, frameFolder(found));
}

describe('the frame of a run', () => {
  it('has its metrics, NaN and infinity as numbers, and a metric that is called like a column apart from it', async () => {
    full(folder);
    const { tables, folder: there } = frame('x__kl-0__seed-1');
    expect(there).toBe(join(folder.dir, 'x__kl-0__seed-1', 'frame'));
    const common = { run: 'x__kl-0__seed-1', cell: null, seed: 1n };
    const none = { 'metrics/seed': null, 'validation/sampled/mean': null };
    expect(await read(tables.metrics.path)).toEqual([
      { ...common, iteration: 1n, ...none, 'metrics/seed': 7, 'policy/loss': 0.5 },
      { ...common, iteration: 2n, ...none, 'policy/loss': NaN, 'validation/sampled/mean': 4 },
      { ...common, iteration: 3n, ...none, 'policy/loss': Infinity },
    ]);
  });

  it('has its episodes, of training first, with a column for each part, term and measure', async () => {
    full(folder);
    const { episodes } = frame('x__kl-0__seed-1').tables;
    const [trained, unscored, heldOut] = await read(episodes.path);
    expect(trained).toMatchObject({
      iteration: 1n,
      key: '1/0/0',
      held_out: false,
      set: null,
      tokens: [1, 2],
      outcome: 'scored',
      value: 0.5,
      normalised: 0.25,
      advantage: NaN,
      other: '{"grid":{"height":1}}',
      'parts/words/value': 1,
      'terms/words': 0.75,
      'measures/other': null,
    });
    expect(unscored).toMatchObject({
      outcome: 'unscored',
      reason: 'timeout',
      detail: 'late',
      value: null,
    });
    expect(heldOut).toMatchObject({ held_out: true, set: 'a/b', sampling: 'greedy', 'measures/other': 3 });
  });

  it('has the judgements of packed pieces and of the current file', async () => {
    full(folder);
    const { judgements } = frame('x__kl-0__seed-1').tables;
    const [first, second, ...more] = await read(judgements.path);
    expect(more).toEqual([]);
    expect(first).toMatchObject({ iteration: 1n, episode: '1/0/0', query: 'viescore_sc', held_out: false });
    expect(first).toMatchObject({ prompt_tokens: null, completion_tokens: null });
    expect(second).toMatchObject({
      iteration: 2n,
      query: 'viescore_pq',
      held_out: true,
      scores: [1, 2.5],
      attempts: 1n,
      prompt_tokens: 812n,
      completion_tokens: 40n,
    });
  });

  it('names the line that is none', () => {
    const { metrics } = full(folder);
    writeFileSync(metrics, `${readFileSync(metrics, 'utf8')}[1]\n`);
    expect(() => frame('x__kl-0__seed-1')).toThrow('not a line of this journal');
    expect(existsSync(join(folder.dir, 'x__kl-0__seed-1', 'frame', 'metrics.parquet'))).toBe(false);
  });
});

describe('the frame of an experiment', () => {
  it('has all cells with their axes, says what is left out, and gives a run without records the same columns', async () => {
    experiment(folder);
    const { tables, folder: there, left_out } = frame('x');
    expect(there).toBe(join(folder.dir, 'x.frame'));
    expect(left_out).toEqual([{ run_name: 'x__kl-2__seed-1', problem: null }]);
    const rows = await read(tables.metrics.path);
    const cell = { cell: 'kl-0__seed-1', seed: 1n, 'axis/kl': '0', 'axis/seed': '1' };
    expect(
      rows.map(({ cell, seed, 'axis/kl': kl, 'axis/seed': axis }) => ({
        cell,
        seed,
        'axis/kl': kl,
        'axis/seed': axis,
      })),
    ).toEqual([cell, cell, cell]);
    const alone = frame('x__kl-1__seed-1').tables;
    expect(alone.episodes).toMatchObject({ rows: 0, columns: Object.keys(COLUMNS.episodes) });
    expect(await read(alone.episodes.path)).toEqual([]);
  });

  it('leaves out a cell that cannot be read, and says why', () => {
    const { metrics } = experiment(folder);
    writeFileSync(metrics, 'no line\n');
    const { left_out, tables } = frame('x');
    expect(tables.metrics.rows).toBe(0);
    expect(left_out[0]).toMatchObject({ run_name: 'x__kl-0__seed-1' });
    expect(left_out[0].problem).toContain(`${metrics}:1`);
  });
});

describe('editrl data frame', () => {
  it('writes, prints what it wrote, and writes again over it', async () => {
    experiment(folder);
    const out = join(folder.dir, 'table');
    const call = ['data', 'frame', 'x', '--exp-dir', folder.dir, '--parquet', out];
    const written = capture();
    expect(await main(call)).toBe(0);
    expect(written.out.split('\n')[0]).toBe(`written: ${out}/metrics.parquet (3 rows, 9 columns)`);
    expect(written.error).toBe('warning: x__kl-2__seed-1 is left out: it was never begun\n');
    written.out = '';
    expect(await main([...call, '--json'])).toBe(0);
    expect(JSON.parse(written.out)).toMatchObject({ tables: { episodes: { rows: 3 }, judgements: { rows: 2 } } });
  });

  it('refuses a name that is neither, and a form that it does not know', async () => {
    const written = capture();
    expect(await main(['data', 'frame', 'y', '--exp-dir', folder.dir, '--parquet'])).toBe(1);
    expect(written.error).toContain("there is no run named 'y'");
    expect(await main(['data', 'frame', 'x', '--exp-dir', folder.dir])).toBe(2);
    expect(written.error).toContain('allowed: --parquet');
  });
});

it('docs/your_data.md has the meaning of every column', () => {
  const page = readFileSync('docs/your_data.md', 'utf8');
  const missing = Object.values(COLUMNS).flatMap((columns) =>
    Object.keys(columns).filter((name) => !new RegExp(`^\\| .*\`${name}\``, 'm').test(page)),
  );
  expect(missing).toEqual([]);
});
