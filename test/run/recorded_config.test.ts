import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { RunError } from '../../src/core/errors.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { claimRun } from '../../src/run/claim/claim.js';
import { changedFrom, claimRequest } from '../../src/run/claim/claim_request.js';
import { RunPaths } from '../../src/run/paths.js';
import { readRecord, writeRecord, type PlainObject, type RunRecord } from '../../src/run/record.js';
import { recordedConfig, recordedSettings } from '../../src/run/recorded_config.js';
import { loadTrained } from '../config/trained.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('recorded-config');

async function recordOf(base: string): Promise<RunRecord> {
  const overlays = ['configs/lib/tiny.libsonnet'];
  const sets = [`base_exp_dir=${base}`, 'run_name=begun'];
  const { settings, resultHash } = await loadTrained({ file: 'configs/sft_s.jsonnet', overlays, sets, env: {} });
  return {
    format: 1,
    run_name: 'begun',
    hash: resultHash,
    import_hash: 'imports',
    settings: structuredClone(settings) as unknown as PlainObject,
    parents: [],
    created_at: '2026-01-01T00:00:00.000Z',
    attempts: [],
  };
}

describe('the config that a record holds', () => {
  it('is the one that the run began with, and changes of its results are rejected', async () => {
    const base = newFolder();
    const paths = new RunPaths(base, 'begun');
    const record = await recordOf(base);
    writeRecord(paths, record);
    saveCheckpoint(paths, 1, { 'trainer.json': '1' });
    const config = recordedConfig(paths, record);
    expect(config.resultHash).toBe(record.hash);
    expect(config.settings).toEqual(record.settings);
    expect(changedFrom(record, config)).toEqual([]);
    const changed = recordedConfig(paths, record, { sets: ['optimizer.learning_rate=1'] });
    expect(() => claimRun(claimRequest(changed, { command: [], versions: {} }))).toThrow('optimizer.learning_rate');
  });

  it('is rejected if this version does not know a key', async () => {
    const { settings } = await recordOf(newFolder());
    expect(() => recordedSettings({ ...settings, later: 1 })).toThrow(RunError);
  });
});

describe('a record without format 1', () => {
  it.each([undefined, null, 0, 2, '1'])('is rejected: format %s', async (format) => {
    const base = newFolder();
    const paths = new RunPaths(base, 'begun');
    const record = await recordOf(base);
    writeRecord(paths, record);
    writeFileSync(paths.record, JSON.stringify({ ...record, format }));
    expect(() => readRecord(paths)).toThrow('not the record of a run that this version of editrl can read');
  });
});
