import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { writeRun } from './made_runs.js';
import { must } from '../../src/core/errors.js';
import { writeExperiment } from '../../src/run/find.js';
import { listExperiments, matrixOf } from '../../src/web/experiments.js';
import { RunsIndex } from '../../src/web/runs_index.js';
import { testFolders } from '../support/folder.js';

const folder = testFolders('experiments');

async function read(dir: string): Promise<RunsIndex> {
  const index = new RunsIndex(
    [dir],
    () => undefined,
    (error) => {
      throw error;
    },
  );
  await index.look();
  index.close();
  return index;
}

function grid(dir: string): void {
  for (const [kl, level] of [
    ['0', 3],
    ['1', 5],
  ] as const) {
    for (const seed of [1, 2]) {
      const state = kl === '1' && seed === 2 ? 'interrupted' : 'finished';
      writeRun(dir, {
        name: `e__kl-${kl}__seed-${seed}`,
        state,
        iteration: 20,
        numIterations: 20,
        level: level + seed,
        seed,
      });
    }
  }
}

describe('experiments', () => {
  it('are those that a sweep recorded, with cells that have not begun', async () => {
    const dir = folder();
    grid(dir);
    const cell = (kl: string, seed: string, refused: string | null = null) => ({
      ...{ run_name: `e__kl-${kl}__seed-${seed}`, axes: { kl, seed }, parents: [], differs: {}, refused },
    });
    const cells = [cell('0', '1'), cell('0', '2', 'other settings'), cell('1', '1'), cell('2', '1')];
    writeExperiment(dir, {
      experiment: 'e',
      file: '/e.jsonnet',
      baseline: { kl: '0' },
      base_axis: null,
      cells,
      parents: [],
    });
    writeFileSync(join(dir, 'broken.experiment.json'), '{"format": 7}');
    const index = await read(dir);
    expect(listExperiments(index).map(({ name, runs }) => [name, runs])).toEqual([['e', 4]]);
    const matrix = matrixOf(index, '0/e');
    expect(matrix.axes[0].values).toEqual(['0', '1', '2']);
    expect(() => matrixOf(index, '0/other')).toThrow('Experiment not found: 0/other.');
    const byKl = new Map(matrix.cells.map((one) => [one.axes['kl'], one]));
    expect(byKl.get('0')).toMatchObject({ is_baseline: true, n: 1 });
    expect(byKl.get('1')?.difference?.mean).toBeCloseTo(2 * (1 - Math.exp(-4)));
    expect(byKl.get('2')).toMatchObject({ mean: null, runs: [{ id: null, state: 'queued' }] });
    // Read once, and again when it was written anew.
    const record = index.experiments.get(dir, 'e');
    expect(index.experiments.get(dir, 'e')).toBe(record);
    writeExperiment(dir, { ...must(record, 'the record'), cells: cells.slice(0, 1) });
    expect(listExperiments(index).map(({ name, runs }) => [name, runs])).toEqual([['e', 1]]);
  });
});
