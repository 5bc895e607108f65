import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { loadExperiment } from '../../src/config/experiment/load.js';
import { prepareSweep } from '../../src/launch/sweep/experiment.js';

let folder: string;
let out: string;
let err: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'editrl-sweep-'));
  [out, err] = ['', ''];
  vi.spyOn(process.stdout, 'write').mockImplementation((text) => ((out += String(text)), true));
  vi.spyOn(process.stderr, 'write').mockImplementation((text) => ((err += String(text)), true));
});

afterEach(() => {
  vi.restoreAllMocks();
  rmSync(folder, { recursive: true, force: true });
});

function experiment(more: Record<string, unknown> = {}, launch: Record<string, unknown> = {}): string {
  const base = {
    run_name: 'x',
    base_exp_dir: join(folder, 'runs'),
    task: 'external',
    num_iterations: 10,
    launch: { command: ['true'], ...launch },
  };
  const axes = { a: { small: {}, large: { parameters: { size: 2 } } }, seed: { '1': { seed: 1 }, '2': { seed: 2 } } };
  const file = join(folder, 'trial.jsonnet');
  writeFileSync(file, JSON.stringify({ name: 'trial', base, axes, ...more }));
  return file;
}

/** The directory of a small cell that has begun. */
function begun(name: string, seed: number, state: string | null = null): void {
  const dir = join(folder, 'runs', name);
  mkdirSync(dir, { recursive: true });
  const settings = {
    run_name: name,
    task: 'external',
    num_iterations: 10,
    seed,
    parameters: {},
    launch: { command: ['true'] },
  };
  const record = { format: 1, run_name: name, hash: 'another', settings, attempts: [], parents: [] };
  writeFileSync(join(dir, 'run.json'), JSON.stringify(record));
  if (state === null) return;
  writeFileSync(join(dir, 'state.json'), JSON.stringify({ state, iteration: 3, num_iterations: 10 }));
}

describe('editrl plan', () => {
  it('warns of cells that only repeat others, beside the document', async () => {
    expect(await main(['plan', experiment({ axes: { a: { one: {}, two: {} } } }), '--json'])).toBe(0);
    expect(JSON.parse(out)).toMatchObject({ experiment: 'trial' });
    expect(err).toMatch(/^warning: 1 of 2 cells repeat others/);
  });

  it('changes every cell with --set, and looks for runs in --exp-dir', async () => {
    const flags = ['--set', 'parameters.extra=1', '--exp-dir', join(folder, 'else where'), '--json'];
    begun('trial__a-small__seed-1', 1, 'failed');
    expect(await main(['plan', experiment(), '--json'])).toBe(0);
    const before = JSON.parse(out) as { cells: { hash: string; state: string }[] };
    out = '';
    expect(await main(['plan', experiment(), ...flags])).toBe(0);
    const after = JSON.parse(out) as typeof before;
    expect(before.cells.map(({ state }) => state)).toContain('failed');
    expect(after.cells.map(({ state }) => state)).not.toContain('failed');
    for (const [index, { hash }] of after.cells.entries()) expect(hash).not.toBe(before.cells[index].hash);
  });
});

describe('editrl sweep', () => {
  it.each(['failed', 'interrupted'])('takes only what %s with --failed', async (state) => {
    begun('trial__a-small__seed-1', 1);
    begun('trial__a-small__seed-2', 2, state);
    const choice = { only: null, failed: true };
    const limits = { maxParallel: null, retries: 0, failFast: false };
    const { jobs } = prepareSweep(await loadExperiment({ file: experiment() }), choice, limits);
    expect(jobs.map(({ name }) => name)).toEqual(['trial__a-small__seed-2']);
  });

  it.each([
    [['--only', 'nothing'], 'no cell of trial has such a name'],
    [['--max-parallel', '0'], '--max-parallel: found 0; allowed: a whole number >= 1'],
    [['--retries', '1.5'], '--retries: found 1.5; allowed: a whole number >= 0'],
    [['--retries', '1', '--retries', '2'], '--retries: found 1 and 2; allowed: a whole number >= 0'],
  ])('rejects %j', async (flags, message) => {
    expect(await main(['sweep', experiment(), ...flags])).toBe(2);
    expect(err).toContain(message);
  });

  it('rejects cells that do not share their devices', async () => {
    const axes = { a: { one: { launch: { command: ['true'], devices: [0] } }, two: {} } };
    expect(await main(['sweep', experiment({ axes })])).toBe(2);
    expect(err).toContain('launch.devices');
  });
});
