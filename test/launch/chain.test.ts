import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../src/config/load.js';
import { dependencies } from '../../src/config/models.js';
import { must } from '../../src/core/errors.js';
import { parentOf } from '../../src/launch/chain.js';
import { claimRun } from '../../src/run/claim/claim.js';
import { claimRequest } from '../../src/run/claim/claim_request.js';
import type { RunPaths } from '../../src/run/paths.js';
import { readRecord, writeRecord } from '../../src/run/record.js';
import { recordedConfig } from '../../src/run/recorded_config.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-parents-'));
const overlays = ['configs/lib/tiny.libsonnet'];
const inBase = `base_exp_dir=${JSON.stringify(base)}`;
/** As a sweep that shares the seed names its parents. */
const seeded = [
  `policy.tokenizer=${reference('tiny_vq__seed-1')}`,
  `environment.model=${reference('tiny_vq__seed-1')}`,
];

function reference(run: string): string {
  return JSON.stringify({ run, config: '../configs/tiny_vq.jsonnet' });
}

function claim(config: LoadedConfig, state: 'finished' | 'interrupted'): RunPaths {
  const handle = claimRun(claimRequest(config, { command: ['run'], versions: { editrl: '0.1.0' } }));
  handle.setState({ state });
  handle.release();
  return handle.paths;
}

describe('what a run starts from', () => {
  let cell: RunPaths;
  beforeAll(async () => {
    const file = 'configs/tiny_vq.jsonnet';
    const parent = await loadConfig({ file, overlays, sets: [inBase, 'seed=1', 'run_name=tiny_vq__seed-1'] });
    claim(parent, 'interrupted');
    const start = await loadConfig({ file: 'configs/sft_s.jsonnet', overlays, sets: [inBase, ...seeded] });
    cell = claim(start, 'interrupted');
  });
  afterAll(() => {
    rmSync(base, { recursive: true, force: true });
  });
  const recorded = (): LoadedConfig => recordedConfig(cell, must(readRecord(cell), 'the record'));
  const tokenizer = (config: LoadedConfig) =>
    must(
      dependencies(config.settings).find(({ run }) => run.startsWith('tiny_vq')),
      'the tokenizer',
    );

  it('is what its config file says, where the run itself comes from a file', async () => {
    const config = await loadConfig({ file: 'configs/sft_s.jsonnet', overlays, sets: [inBase] });
    const { config: parent, finished } = await parentOf(config, tokenizer(config));
    expect(parent?.settings).toMatchObject({ run_name: 'tiny_vq', seed: 42 });
    expect(finished).toBe(false);
  });

  it('continues as it was recorded, whatever its config file says, where the run is continued by its name', async () => {
    const { config: parent, finished } = await parentOf(recorded(), tokenizer(recorded()));
    expect(parent?.settings).toMatchObject({ run_name: 'tiny_vq__seed-1', seed: 1 });
    expect(finished).toBe(false);
  });

  it('stays as long as it was made, whatever its config file says', async () => {
    const file = 'configs/tiny_vq.jsonnet';
    claim(await loadConfig({ file, overlays, sets: [inBase, 'num_iterations=3000'] }), 'finished');

    const config = await loadConfig({ file: 'configs/sft_s.jsonnet', overlays, sets: [inBase] });
    const longer = await parentOf(config, tokenizer(config));
    expect(longer.note).toBe('tiny_vq was extended to 3000 iterations; its config has 1500');
    expect(longer).toMatchObject({
      finished: true,
      config: { settings: { run_name: 'tiny_vq', num_iterations: 3000 } },
    });
  });

  it('is not waited for where a checkpoint of it is pinned', async () => {
    const record = must(readRecord(cell), 'the record');
    writeRecord(cell, { ...record, parents: [{ run: 'tiny_vq__seed-1', iteration: 5 }] });
    expect(await parentOf(recorded(), tokenizer(recorded()))).toEqual({ config: null, finished: false });
    writeRecord(cell, record);
    expect((await parentOf(recorded(), tokenizer(recorded()))).config).not.toBeNull();
  });

  it('is taken as it is when it is finished', async () => {
    const file = 'configs/tiny_vq.jsonnet';
    const parent = await loadConfig({ file, overlays, sets: [inBase, 'seed=1', 'run_name=tiny_vq__seed-1'] });
    claim(parent, 'finished');
    expect(await parentOf(recorded(), tokenizer(recorded()))).toEqual({ config: null, finished: true });
  });

  it('cannot be made again under its name by a run that is continued: that could be another one', async () => {
    rmSync(join(base, 'tiny_vq__seed-1'), { recursive: true });
    await expect(parentOf(recorded(), tokenizer(recorded()))).rejects.toMatchObject({
      code: 'run',
      message: expect.stringContaining('starts from the run tiny_vq__seed-1, which no longer exists') as string,
    });
  });
});
