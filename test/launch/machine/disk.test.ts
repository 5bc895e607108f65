import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import type { LoadedConfig } from '../../../src/config/load.js';
import { checkFolder, checkpointSpace } from '../../../src/launch/machine/disk.js';
import { shapesOf } from '../../../src/launch/machine/shapes.js';
import { Preflight } from '../../../src/launch/preflight/preflight.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { claimRequest } from '../../../src/run/claim/claim_request.js';
import type { RunSettings } from '../../../src/config/schema/run.js';
import { loadEvaluated } from '../../config/evaluated.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('disk');
const MIB = 2 ** 20;

async function runOf(name: string, ...sets: string[]): Promise<LoadedConfig> {
  return loadEvaluated({ file: `configs/${name}.jsonnet`, overlays: ['configs/lib/tiny.libsonnet'], sets });
}

/** The chain of the quickstart in a folder, with what its last run sets. */
async function chain(folder: string, ...sets: string[]): Promise<LoadedConfig[]> {
  const place = `base_exp_dir=${folder}`;
  return [await runOf('tiny_vq', place), await runOf('sft_s', place), await runOf('sft_s__rl_s', place, ...sets)];
}

function spaceOf(runs: readonly LoadedConfig[], from = 0): number[] {
  const named = new Map<string, RunSettings>(runs.map(({ settings }) => [settings.run_name, settings]));
  const ahead = runs.map(({ settings }) => ({ settings, from }));
  return [...checkpointSpace(ahead, shapesOf(named)).values()];
}

describe('the space that checkpoints will take', () => {
  it('is about what they take, with the one that is being written', async () => {
    // Bytes of the files of weights and of the optimizer that runs of these configs wrote.
    const written = { tiny_vq: 112_672 + 225_536, sft_s: 1_441_904 + 2_884_424 };
    for (const [name, bytes] of Object.entries(written)) {
      const [space] = spaceOf([await runOf(name, 'checkpoint.keep_last=2')]);
      expect(space / (3 * bytes), name).toBeGreaterThan(2 / 3);
      expect(space / (3 * bytes), name).toBeLessThan(3 / 2);
    }
  });

  it('grows with the checkpoints that are kept, and with the averages in them', async () => {
    const one = spaceOf([await runOf('sft_s', 'checkpoint={"keep_last":1,"keep_every_n_iterations":null}')])[0] / 2;
    const count = async (checkpoint: object, from = 0): Promise<number> => {
      const sets = ['num_iterations=1000', `checkpoint=${JSON.stringify(checkpoint)}`];
      return spaceOf([await runOf('sft_s', ...sets)], from)[0] / one - 1;
    };
    const saved = { save_every_n_iterations: 20 };
    expect(await count({ ...saved, keep_every_n_iterations: null, keep_last: 4 })).toBe(4);
    expect(await count({ ...saved, keep_every_n_iterations: 100, keep_last: 4 })).toBe(14);
    expect(await count({ ...saved, keep_every_n_iterations: 20, keep_last: 4 })).toBe(50);
    // The latest are there already; of those for good, six hundreds are to come.
    expect(await count({ ...saved, keep_every_n_iterations: 100, keep_last: 4 }, 400)).toBe(6);
    expect(await count({ save_every_n_iterations: 600, keep_every_n_iterations: null, keep_last: 9 })).toBe(2);
    const averaged = await runOf(
      'sft_s',
      'checkpoint={"keep_last":1,"keep_every_n_iterations":null}',
      'optimizer.ema_decay=0.9',
    );
    expect(spaceOf([averaged])[0] / one).toBeCloseTo((2 * 4) / 3, 10);
  });

  it('is the sum over the runs of a folder, where each keeps its own and one is written at a time', async () => {
    const run = await runOf('sft_s', 'checkpoint.keep_last=2');
    const other = { ...run, settings: { ...run.settings, run_name: 'other' } };
    const elsewhere = { ...run, settings: { ...run.settings, base_exp_dir: '/elsewhere' } };
    const [one] = spaceOf([run]);
    expect(spaceOf([run, other, elsewhere])).toEqual([(one * 5) / 3, one]);
  });

  it('is known of a policy that a run of the chain makes, and is nothing if it is not known', async () => {
    const runs = await chain(newFolder());
    const [all] = spaceOf(runs);
    expect(all).toBeGreaterThan(spaceOf(runs.slice(0, 2))[0]);
    expect(spaceOf(runs.slice(2))).toEqual([0]);
  });
});

describe('a folder for runs', () => {
  it('is rejected on a disk that is full, or has no room for their checkpoints', () => {
    const folder = newFolder();
    expect(() => checkFolder(folder, 20 * MIB, () => 20 * MIB)).not.toThrow();
    expect(() => checkFolder(folder, 20 * MIB, () => 20 * MIB - 1)).toThrow(
      /^the disk is too small: 19 MiB are free, and the checkpoints of these runs are estimated to need 20 MiB$/,
    );
    expect(() => checkFolder(folder, 96 * 1024 * MIB, () => 50.5 * 1024 * MIB)).toThrow(/50\.5 GiB .* need 96\.0 GiB$/);
    expect(() => checkFolder(folder, 0, () => 16 * MIB)).not.toThrow();
    expect(() => checkFolder(folder, 0, () => 16 * MIB - 1)).toThrow(
      'the disk is full: 15 MiB are free; needed: at least 16 MiB',
    );
  });

  it('is in the way of a chain once, until its first runs are finished', async () => {
    const folder = newFolder();
    const runs = await chain(folder, 'checkpoint={"save_every_n_iterations":1,"keep_every_n_iterations":1}');
    // 80 checkpoints of 5 MB are kept of the last run.
    const found = async (freeSpace: () => number): Promise<string[]> =>
      (await new Preflight().check(runs, { freeSpace })).obstacles.map(({ run, error }) => `${run}: ${error.toText()}`);
    expect(await found(() => 500 * MIB)).toEqual([]);
    expect(await found(() => 380 * MIB)).toEqual([
      expect.stringMatching(
        /^tiny_vq: .*: the disk is too small: 380 MiB are free, .* to need 4\d\d MiB\n {2}Free some space, or/,
      ),
    ]);
    expect(readdirSync(folder)).toEqual([]);
    const last = runs[2];
    const handle = claimRun(claimRequest(last, { command: [], versions: {} }));
    handle.setState({ iteration: 70 });
    handle.release();
    expect(await found(() => 380 * MIB)).toEqual([]);
    const options = { freeSpace: () => 380 * MIB, startOver: new Set([last]) };
    expect((await new Preflight().check(runs, options)).obstacles.map(({ error }) => error.message)).toEqual([
      expect.stringContaining('the disk is too small'),
    ]);
  });
});
