import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, describe, expect, it } from 'vitest';
import { EditrlError } from '../../../src/core/errors.js';
import { saveCheckpoint } from '../../../src/run/checkpoints.js';
import { claimRun, type ClaimRequest } from '../../../src/run/claim/claim.js';
import { searchFolders } from '../../../src/run/find.js';
import { realLockWorld } from '../../../src/run/claim/lock.js';
import { MetricsJournal, readMetrics } from '../../../src/run/metrics.js';
import { RunPaths } from '../../../src/run/paths.js';
import { readRecord } from '../../../src/run/record.js';
import { readState } from '../../../src/run/state.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-claim-'));
let counter = 0;
let name: string;
let paths: RunPaths;
beforeEach(() => {
  name = `run${counter++}`;
  paths = new RunPaths(base, name);
});
afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

interface Choice {
  result?: Record<string, unknown>;
  operation?: Record<string, unknown>;
  num_iterations?: number;
  mayGrow?: boolean;
}

function request(choice: Choice = {}): ClaimRequest {
  const result = { seed: 42, kl_coeff: 3e-4, ...choice.result };
  const num_iterations = choice.num_iterations ?? 10;
  return {
    settings: { ...result, ...choice.operation, run_name: name, base_exp_dir: base, num_iterations },
    compare: (before) => {
      const changes = Object.entries(result).map(([key, after]) => ({ key, before: before[key], after }));
      const iterations = { key: 'num_iterations', before: before['num_iterations'], after: num_iterations };
      const grew = choice.mayGrow !== false && num_iterations >= Number(iterations.before);
      return [...changes, ...(grew ? [] : [iterations])].filter((change) => change.before !== change.after);
    },
    resultHash: 'hash',
    importHash: 'imports',
    command: ['editrl', 'run', 'x.jsonnet'],
    versions: { editrl: '0.1.0' },
  };
}

function textOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof EditrlError) return error.toText().replaceAll(base, '<runs>').replaceAll(name, '<run>');
    throw error;
  }
  return 'nothing was raised';
}

/** A run that trained to iteration 6, saved at 3 and 6, and died. */
function trained(): void {
  const handle = claimRun(request());
  const metrics = new MetricsJournal(handle.paths);
  for (let i = 0; i <= 8; i++) metrics.append(i, { 'reward/mean': i });
  metrics.close();
  saveCheckpoint(handle.paths, 3, { 'trainer.json': '3' });
  saveCheckpoint(handle.paths, 6, { 'trainer.json': '6' });
  handle.setState({ iteration: 8 });
  handle.release();
}

describe('claiming', () => {
  it('makes a run, with what it is made from', () => {
    const handle = claimRun({ ...request(), parents: [{ run: 'sft_s' }], devices: ['cpu'] });
    expect(handle).toMatchObject({ kind: 'new', attempt: 1, checkpoint: null, notes: [] });
    expect(readRecord(paths)).toMatchObject({
      run_name: name,
      hash: 'hash',
      import_hash: 'imports',
      settings: { seed: 42, num_iterations: 10 },
      parents: [{ run: 'sft_s' }],
      attempts: [
        { attempt: 1, from_iteration: 0, command: ['editrl', 'run', 'x.jsonnet'], devices: ['cpu'], pid: process.pid },
      ],
    });
    expect(readState(paths)).toMatchObject({ state: 'running', iteration: 0, num_iterations: 10 });
    expect(() => claimRun(request())).toThrow('in use by process');
    handle.release();
  });

  it('records each attempt, keeps what the first one noted, and takes what the last one says', () => {
    const config = { file: '/x.jsonnet', overlays: ['/tiny.libsonnet'], sets: ['seed=42'] };
    const texts = { 'reward.prompt': 'digest' };
    const theirs = { ...realLockWorld(), host: 'node7', slurmJobId: '12' };
    const first = claimRun({ ...request(), config, texts, devices: ['cuda:0'] }, theirs);
    first.noteData({ 's/train': { samples: 1, ids: 'd', files: null } });
    first.release();
    const fork = { run: 'other', iteration: 4, hash: 'h' };
    const recorded = { ...readRecord(paths), fork, created_at: '2020-01-01T00:00:00.000Z' };
    writeFileSync(paths.record, JSON.stringify(recorded));
    const again = { ...request(), resultHash: 'of another version', importHash: 'later', command: ['again'] };
    claimRun(again).release();
    const [one, two] = readRecord(paths)?.attempts ?? [];
    expect(one).toEqual({
      attempt: 1,
      started_at: expect.stringMatching(/^20.*Z$/) as string,
      from_iteration: 0,
      command: ['editrl', 'run', 'x.jsonnet'],
      host: 'node7',
      pid: process.pid,
      slurm_job_id: '12',
      devices: ['cuda:0'],
      versions: { editrl: '0.1.0' },
      import_hash: 'imports',
    });
    expect(two).toMatchObject({ attempt: 2, command: ['again'], devices: [], import_hash: 'later' });
    expect({ ...readRecord(paths), attempts: [] }).toEqual({
      format: 1,
      run_name: name,
      hash: 'hash',
      import_hash: 'later',
      settings: again.settings,
      parents: [],
      data: { 's/train': { samples: 1, ids: 'd', files: null } },
      config,
      fork,
      created_at: '2020-01-01T00:00:00.000Z',
      attempts: [],
    });
    expect(recorded).toMatchObject({ texts });
  });

  it('removes half-written files in every folder, and nothing else', () => {
    trained();
    for (const dir of [paths.episodesDir, paths.mediaDir]) mkdirSync(dir, { recursive: true });
    for (const dir of [paths.dir, paths.episodesDir, paths.mediaDir]) {
      for (const file of ['a.1.tmp', 'notes.txt', 'tmp']) writeFileSync(join(dir, file), '');
    }
    writeFileSync(paths.judgements, '{"key":"k"}\n{"ke');
    const handle = claimRun(request());
    expect(handle.notes).toEqual(['removed an incomplete last line of 4 bytes from judgements.jsonl']);
    for (const dir of [paths.episodesDir, paths.mediaDir]) expect(readdirSync(dir)).toEqual(['notes.txt', 'tmp']);
    expect(readdirSync(paths.dir)).toEqual(expect.arrayContaining(['notes.txt', 'tmp']));
    expect(readdirSync(paths.dir)).not.toContain('a.1.tmp');
    handle.release();
  });

  it('is free again if it cannot be tidied up', () => {
    trained();
    writeFileSync(paths.episodesDir, '');
    expect(textOf(() => claimRun(request()))).toContain('<runs>/<run>: cannot write (ENOTDIR)');
    rmSync(paths.episodesDir);
    claimRun(request()).release();
  });

  it('begins again if nothing but a torn start is left', () => {
    mkdirSync(paths.dir, { recursive: true });
    writeFileSync(paths.metrics, '{"iteration":0,"a":1}\n');
    const handle = claimRun(request());
    expect(handle.kind).toBe('new');
    expect(readMetrics(paths)).toEqual([]);
    handle.release();
  });

  it('notes the checkpoint of the parent that is used, once, and only while the run is owned', () => {
    const dir = saveCheckpoint(new RunPaths(base, `${name}_parent`), 4, { 'trainer.json': '4' });
    const used = { iteration: 4, dir, problems: [] };
    const handle = claimRun({ ...request(), parents: [{ run: 'other' }, { run: 'parent' }] });
    handle.noteParent('unknown', used);
    expect(readRecord(paths)?.parents).toEqual([{ run: 'other' }, { run: 'parent' }]);
    handle.noteParent('parent', used);
    const noted = { run: 'parent', iteration: 4, manifest: expect.stringMatching(/^[0-9a-f]{64}$/) as string };
    expect(readRecord(paths)?.parents).toEqual([{ run: 'other' }, noted]);
    const before = statSync(paths.record).ino;
    handle.noteParent('parent', used);
    expect(statSync(paths.record).ino).toBe(before);
    handle.noteParent('parent', { ...used, iteration: 5 });
    expect(readRecord(paths)?.parents).toEqual([{ run: 'other' }, { ...noted, iteration: 5 }]);
    expect(handle.record).toEqual(readRecord(paths));
    const lost = readFileSync(paths.lock, 'utf8');
    rmSync(paths.lock);
    expect(() => handle.noteParent('parent', used)).toThrow('no longer owns the run');
    expect(() => handle.requireOwned()).toThrow('no longer owns the run');
    writeFileSync(paths.lock, lost);
    handle.release();
  });

  it('resumes from the last whole checkpoint and drops what came after it', () => {
    trained();
    mkdirSync(join(paths.checkpointsDir, '.writing-000009-1'));
    writeFileSync(join(paths.dir, 'state.json.77.tmp'), 'half');
    const handle = claimRun(request());
    expect(handle).toMatchObject({ kind: 'resumed', attempt: 2, notes: [] });
    expect(handle.checkpoint?.iteration).toBe(6);
    expect(handle.state.iteration).toBe(6);
    expect(readMetrics(paths).map((line) => line.iteration)).toEqual([0, 1, 2, 3, 4, 5, 6]);
    expect(readdirSync(paths.checkpointsDir)).toEqual(['000003', '000006']);
    expect(readdirSync(paths.dir).sort()).toEqual([
      'checkpoints',
      'judgements.jsonl',
      'lock.json',
      'metrics.jsonl',
      'run.json',
      'state.json',
    ]);
    expect(readRecord(paths)?.attempts.map((attempt) => attempt.from_iteration)).toEqual([0, 6]);
    handle.release();
  });

  it('falls back when the last checkpoint is corrupt, says so, and keeps it aside', () => {
    trained();
    writeFileSync(join(paths.checkpoint(6), 'trainer.json'), '7');
    const handle = claimRun(request());
    expect(handle.checkpoint?.iteration).toBe(3);
    expect(handle.notes[0]).toContain('does not match the SHA-256 in its manifest');
    expect(handle.notes[1]).toMatch(/checkpoint 6 moved to .*corrupt-000006-\d+; the run continues from iteration 3/);
    expect(readMetrics(paths).at(-1)?.iteration).toBe(3);
    saveCheckpoint(paths, 6, { 'trainer.json': '6' });
    handle.release();
    expect(claimRun(request()).checkpoint?.iteration).toBe(6);
  });

  it('loses nothing when no checkpoint is whole', () => {
    trained();
    for (const i of [3, 6]) writeFileSync(join(paths.checkpoint(i), 'trainer.json'), 'x');
    expect(textOf(() => claimRun(request()))).toMatch(
      /^<runs>\/<run>\/checkpoints: none of the 2 checkpoints is valid; the newest: .*trainer\.json does not match the SHA-256 in its manifest\n {2}Restore a checkpoint from a copy/,
    );
    expect(readMetrics(paths)).toHaveLength(9);
    rmSync(paths.checkpointsDir, { recursive: true });
    const handle = claimRun(request());
    expect(handle).toMatchObject({ kind: 'resumed', checkpoint: null, state: { iteration: 0 } });
    expect(readMetrics(paths)).toEqual([]);
    handle.release();
  });

  it('rejects other settings that decide the result, and shows them all', () => {
    trained();
    const changed = request({ result: { kl_coeff: 1e-3, clip_range: 0.2 }, num_iterations: 5 });
    expect(textOf(() => claimRun(changed))).toMatchInlineSnapshot(`
      "run '<run>' was started with other settings that affect the result:
          kl_coeff: 0.0003 -> 0.001
          clip_range: null -> 0.2
          num_iterations: 10 -> 5 (must not be lowered)
        Restore these settings to continue the run, or choose another run_name. \`editrl run … --fresh\` sets the old run aside and starts from scratch. To change the settings during training: --allow-changes kl_coeff,clip_range,num_iterations"
    `);
    expect(readMetrics(paths)).toHaveLength(9);
    claimRun(request()).release();
  });

  it('takes changes that are allowed, says them, and records them with the attempt', () => {
    trained();
    const changed = { ...request({ result: { kl_coeff: 1e-3, clip_range: 0.2 } }), allowChanges: ['kl_coeff'] };
    expect(textOf(() => claimRun(changed))).toMatch(/affect the result:\n {4}clip_range: null -> 0.2\n/);
    const both = { ...changed, allowChanges: ['kl_coeff', 'clip_range'] };
    const handle = claimRun(both);
    expect(handle.notes).toEqual([
      'changed as allowed: kl_coeff: 0.0003 -> 0.001',
      'changed as allowed: clip_range: null -> 0.2',
    ]);
    expect(handle.record.attempts.at(-1)?.allowed_changes).toEqual([
      { key: 'kl_coeff', before: 3e-4, after: 1e-3 },
      { key: 'clip_range', after: 0.2 },
    ]);
    expect(readRecord(paths)?.settings).toMatchObject({ kl_coeff: 1e-3, clip_range: 0.2 });
    handle.release();
    // The same command again, as a restart gives it.
    for (let i = 0; i < 2; i++) claimRun(both).release();
    expect(readRecord(paths)?.attempts.at(-1)?.allowed_changes).toBeUndefined();
  });

  it('takes other settings until there is a checkpoint, if nothing is learned outside of them', () => {
    claimRun(request()).release();
    const changed = { ...request({ result: { kl_coeff: 1e-3 } }), resultHash: 'another hash' };
    expect(textOf(() => claimRun(changed))).toMatch('was started with other settings');
    const handle = claimRun({ ...changed, learnsInCheckpoints: true });
    expect(handle.notes).toEqual(['changed before the first checkpoint: kl_coeff: 0.0003 -> 0.001']);
    expect(handle.record).toMatchObject({ hash: 'another hash', settings: { kl_coeff: 1e-3 } });
    expect(handle.attempt).toBe(2);
    saveCheckpoint(handle.paths, 1, { 'trainer.json': '1' });
    handle.release();
    expect(textOf(() => claimRun({ ...request(), learnsInCheckpoints: true }))).toMatch('kl_coeff: 0.001 -> 0.0003');
  });

  it('refuses to allow what does not change', () => {
    trained();
    const text = textOf(() =>
      claimRun({ ...request({ result: { kl_coeff: 1 } }), allowChanges: ['kl_coeff', 'seed'] }),
    );
    expect(text).toContain("--allow-changes names seed, but run '<run>' has the same value; changed: kl_coeff");
    const before = readFileSync(paths.record, 'utf8');
    expect(textOf(() => claimRun({ ...request(), allowChanges: ['seed'] }))).toContain('has the same value\n');
    expect(readFileSync(paths.record, 'utf8')).toBe(before);
    name = `${name}_fresh`;
    expect(textOf(() => claimRun({ ...request(), allowChanges: ['seed'] }))).toContain('--allow-changes names seed');
  });

  it('takes changed operation fields and more iterations', () => {
    trained();
    const handle = claimRun(request({ operation: { track: { wandb: 'on' } }, num_iterations: 20 }));
    expect(handle.notes).toEqual(['num_iterations: 10 -> 20']);
    expect(readRecord(paths)?.settings).toMatchObject({ track: { wandb: 'on' }, num_iterations: 20 });
    expect(handle.state.num_iterations).toBe(20);
    handle.release();
    expect(textOf(() => claimRun(request({ num_iterations: 30, mayGrow: false })))).toContain(
      'num_iterations: 20 -> 30 (the learning rate schedule depends on it; ',
    );
  });

  it('knows a finished run, holds nothing of it, and continues it when there are more iterations', () => {
    trained();
    const running = claimRun(request());
    saveCheckpoint(paths, 10, { 'trainer.json': '10' });
    running.setState({ state: 'finished', iteration: 10 });
    running.release();
    const before = readFileSync(paths.record, 'utf8');
    for (let i = 0; i < 2; i++) {
      expect(claimRun(request())).toMatchObject({ kind: 'finished', state: { iteration: 10 } });
    }
    expect(readFileSync(paths.record, 'utf8')).toBe(before);
    expect(readdirSync(paths.dir)).not.toContain('lock.json');
    const more = claimRun(request({ num_iterations: 12 }));
    expect(more).toMatchObject({ kind: 'resumed', state: { state: 'running', iteration: 10 } });
    more.setState({ state: 'finished', iteration: 11, stopped_early: true, reason: 'the held-out loss is flat' });
    more.release();
    expect(claimRun(request({ num_iterations: 12 })).kind).toBe('finished');
    const further = claimRun(request({ num_iterations: 50 }));
    expect(further).toMatchObject({ kind: 'resumed', state: { state: 'running', iteration: 10 } });
    further.release();
  });

  it('continues one that ended by its own rule when what decides that is changed as allowed', () => {
    trained();
    const running = claimRun(request());
    running.setState({ state: 'finished', iteration: 6, stopped_early: true, reason: 'flat' });
    running.release();
    expect(claimRun(request()).kind).toBe('finished');
    const handle = claimRun({ ...request({ result: { kl_coeff: 1 } }), allowChanges: ['kl_coeff'] });
    expect(handle).toMatchObject({ kind: 'resumed', state: { state: 'running', stopped_early: false } });
    handle.release();
  });

  it('leaves one that came to its end finished, whatever is changed as allowed', () => {
    trained();
    const running = claimRun(request());
    running.setState({ state: 'finished', iteration: 10 });
    running.release();
    const changed = { ...request({ result: { kl_coeff: 1 } }), allowChanges: ['kl_coeff'] };
    expect(claimRun(changed)).toMatchObject({ kind: 'finished', state: { state: 'finished', iteration: 10 } });
    expect(readState(paths)).toMatchObject({ state: 'finished', iteration: 10 });
    expect(readRecord(paths)?.settings).toMatchObject({ kl_coeff: 3e-4 });
  });

  it('does not touch a folder whose checkpoints have no record', () => {
    saveCheckpoint(paths, 3, { 'trainer.json': '3' });
    expect(textOf(() => claimRun(request()))).toMatch(
      /^<runs>\/<run>: there are checkpoints but no run.json\n {2}Restore run.json from a copy/,
    );
    expect(readdirSync(paths.checkpointsDir)).toEqual(['000003']);
  });

  it.each(['../x', '', 'a/b', '.hidden', 'x'.repeat(97), 'ä'])('refuses the name %j', (bad) => {
    expect(() => new RunPaths(base, bad)).toThrow('is not a valid run name');
  });
});

describe('finding runs', () => {
  it('searches the given folder, else APP__BASE_EXP_DIR, else runs and runs/tiny', () => {
    expect(searchFolders('there', { APP__BASE_EXP_DIR: 'e' })).toEqual(['there']);
    expect(searchFolders(undefined, { APP__BASE_EXP_DIR: 'e' })).toEqual(['e']);
    expect(searchFolders(undefined, {})).toEqual(['runs', join('runs', 'tiny')]);
  });
});

describe('the datasets of a run', () => {
  const list = (ids: string, samples = 3, files: string | null = null) => ({ 's/train': { samples, ids, files } });

  it('are recorded, and may change until there is a checkpoint', () => {
    const first = claimRun(request());
    first.noteData(list('a'));
    expect(readRecord(paths)?.data).toEqual(list('a'));
    first.noteData(list('b'));
    first.release();
    const again = claimRun(request());
    expect(again.record.data).toEqual(list('b'));
    again.noteData(list('c'));
    expect(readRecord(paths)?.data).toEqual(list('c'));
    // What is the same is not written again.
    const before = statSync(paths.record).ino;
    again.noteData(list('c'));
    expect(statSync(paths.record).ino).toBe(before);
    again.noteData({ constructor: { samples: 1, ids: 'e', files: null } });
    expect(statSync(paths.record).ino).not.toBe(before);
    // Without a checkpoint nothing was learned from what is named no more.
    expect(again.record.data).toEqual({ constructor: { samples: 1, ids: 'e', files: null } });
    again.release();
  });

  it('are then those that the run began with', () => {
    const handle = claimRun(request());
    handle.noteData({ 's/train': { ...list('a')['s/train'], in_training: 2 } });
    saveCheckpoint(handle.paths, 3, { 'trainer.json': '3' });
    handle.release();
    const resumed = claimRun(request());
    resumed.noteData(list('a'));
    // What was found at the beginning stays.
    expect(readRecord(paths)?.data?.['s/train'].in_training).toBe(2);
    expect(
      textOf(() => {
        resumed.noteData(list('b', 4));
      }),
    ).toMatch(/s\/train: the dataset has changed since run <run> started: it had 3 samples and now has 4.*--fresh/s);
    // One that an earlier version began has none recorded, and one that is new to the settings is no other.
    resumed.noteData({ ...list('a', 3, 'known'), 'c/train': { samples: 1, ids: 'z', files: null } });
    expect(textOf(() => resumed.noteData(list('a', 3, 'others')))).toContain('some of its 3 samples differ');
    expect(Object.keys(readRecord(paths)?.data ?? {})).toEqual(['s/train', 'c/train']);
    resumed.release();
  });
});
