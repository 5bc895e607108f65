import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { hostname, tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeEach, expect, it } from 'vitest';
import { EditrlError } from '../../../src/core/errors.js';
import { saveCheckpoint } from '../../../src/run/checkpoints.js';
import { claimRun } from '../../../src/run/claim/claim.js';
import { storePng, writeEpisodes, writeHeldOutEpisodes } from '../../../src/run/episodes.js';
import { forkRun } from '../../../src/run/claim/fork.js';
import { Journal, readLines } from '../../../src/run/journal.js';
import { MetricsJournal, readMetrics } from '../../../src/run/metrics.js';
import type { RunPaths } from '../../../src/run/paths.js';
import { checkpointsOfForks } from '../../../src/run/claim/pins.js';
import { readRecord } from '../../../src/run/record.js';
import { readState } from '../../../src/run/state.js';
import { holdServerFolder, SERVER_LOCK } from '../../../src/run/claim/training_server_lock.js';

const base = mkdtempSync(join(tmpdir(), 'editrl-fork-'));
let counter = 0;
let source: RunPaths;
let pictures: string[];

afterAll(() => {
  rmSync(base, { recursive: true, force: true });
});

beforeEach(() => {
  const name = `run${counter++}`;
  const handle = claimRun({
    settings: { seed: 42, run_name: name, base_exp_dir: base, num_iterations: 10 },
    compare: () => [],
    resultHash: 'hash',
    importHash: 'imports',
    command: ['run'],
    versions: {},
    parents: [{ run: 'sft_s' }],
  });
  source = handle.paths;
  const metrics = new MetricsJournal(source);
  const judgements = new Journal(source.judgements);
  judgements.append({ key: 'canary', text: 'x' });
  pictures = [];
  for (let i = 0; i <= 8; i++) {
    metrics.append(i, { 'reward/mean': i });
    for (const key of [`${i}/0/0/viescore_sc`, `validation/${i}/s/greedy/0/viescore_sc`]) judgements.append({ key });
    pictures.push(storePng(source, Buffer.from(`picture ${i}`)));
    writeEpisodes(source, i, [{ image: pictures[i] }]);
    if (i % 2 === 0) writeHeldOutEpisodes(source, i, [{ key: 'validation' }]);
  }
  metrics.close();
  judgements.close();
  saveCheckpoint(source, 3, { 'trainer.json': '3', 'policy.safetensors': 'weights' });
  saveCheckpoint(source, 6, { 'trainer.json': '6', 'policy.safetensors': 'others' });
  handle.setState({ iteration: 8 });
  handle.release();
});

function textOf(action: () => unknown): string {
  try {
    action();
  } catch (error) {
    if (error instanceof EditrlError) return error.toText();
    throw error;
  }
  return 'nothing was raised';
}

it('begins with the checkpoint and what led to it, and with nothing that came after', () => {
  const fork = forkRun(source, 3, `${source.runName}_fork`);
  expect(readdirSync(fork.checkpointsDir)).toEqual(['000003']);
  expect(readMetrics(fork).map(({ iteration }) => iteration)).toEqual([0, 1, 2, 3]);
  expect(readdirSync(fork.episodesDir)).toEqual(
    ['000000', '000001', '000002', '000003', 'validation_000000', 'validation_000002'].map((name) => `${name}.jsonl`),
  );
  expect(readdirSync(fork.mediaDir).sort()).toEqual(
    pictures
      .slice(0, 4)
      .map((hash) => `${hash}.png`)
      .sort(),
  );
  const keys = readLines(fork.judgements).map(({ key }) => key);
  expect(keys).toContain('canary');
  expect(keys).toContain('validation/3/s/greedy/0/viescore_sc');
  expect(keys.filter((key) => /(^|\/)4\//.test(String(key)))).toEqual([]);
  expect(keys).toHaveLength(9);
  expect(readRecord(fork)).toMatchObject({
    run_name: fork.runName,
    settings: { run_name: fork.runName, seed: 42 },
    parents: [{ run: 'sft_s' }],
    fork: { run: source.runName, iteration: 3, hash: 'hash' },
    attempts: [],
  });
  expect(readState(fork)).toMatchObject({ state: 'interrupted', iteration: 3, num_iterations: 10 });
  expect(readMetrics(source)).toHaveLength(9);
  expect(readdirSync(base).filter((name) => name.startsWith('.'))).toEqual([]);
});

it('has what samplers and an images server gave up to there, and the images themselves', () => {
  const named = (iteration: number): string => storePng(source, Buffer.from(`painted ${iteration}`));
  const [answers, painted] = [new Journal(source.answers), new Journal(source.pictures)];
  const iterations = [2, 3, 4];
  for (const i of iterations) {
    answers.append({ key: `${i}/0/0`, request_hash: 'r', ids: [1] });
    painted.append({ key: `${i}/0/0`, request_hash: 'r', picture: named(i) });
    painted.append({ key: `validation/${i}/s/greedy/0`, request_hash: 'r', picture: null, refused: 'no' });
  }
  answers.close();
  painted.close();
  const fork = forkRun(source, 3, `${source.runName}_fork`);
  expect(readLines(fork.answers).map(({ key }) => key)).toEqual(['2/0/0', '3/0/0']);
  expect(readLines(fork.pictures).map(({ key }) => key)).toEqual([
    '2/0/0',
    'validation/2/s/greedy/0',
    '3/0/0',
    'validation/3/s/greedy/0',
  ]);
  expect(iterations.map((i) => existsSync(fork.media(named(i))))).toEqual([true, true, false]);
});

it('shares the weights with the run that it comes from', () => {
  const fork = forkRun(source, 6, `${source.runName}_fork`);
  const [ours, theirs] = [fork, source].map((run) => statSync(join(run.checkpoint(6), 'policy.safetensors')).ino);
  expect(ours).toBe(theirs);
});

it('is claimed as a run that continues from there, and stays a fork', () => {
  const fork = forkRun(source, 3, `${source.runName}_fork`);
  const handle = claimRun({
    settings: { seed: 42, run_name: fork.runName, base_exp_dir: base, num_iterations: 10 },
    compare: () => [],
    resultHash: 'hash',
    importHash: 'imports',
    command: ['resume'],
    versions: {},
  });
  handle.release();
  expect(handle).toMatchObject({ kind: 'resumed', attempt: 1, checkpoint: { iteration: 3 } });
  expect(readRecord(fork)?.fork).toEqual({ run: source.runName, iteration: 3, hash: 'hash' });
});

it('takes along what a training server of its own has saved, once that has ended', async () => {
  const saved = (paths: RunPaths, ...names: string[]): string => join(paths.trainingServerDir, ...names);
  mkdirSync(saved(source, 'checkpoints'), { recursive: true });
  writeFileSync(saved(source, 'checkpoints', 'state'), 'weights');
  writeFileSync(saved(source, 'database'), 'one');
  const lock = await holdServerFolder(source.trainingServerDir, {
    over: new AbortController().signal,
    notice: () => {},
    lost: () => {},
  });
  const name = `fork${counter++}`;
  expect(textOf(() => forkRun(source, 3, name))).toContain('uses this folder');
  expect(existsSync(join(base, name))).toBe(false);
  lock.release();
  // One that was killed leaves its lock behind.
  const dead = { token: 'of the dead', host: hostname(), pid: 2 ** 22 + 1 };
  writeFileSync(saved(source, SERVER_LOCK), JSON.stringify(dead));
  const fork = forkRun(source, 3, name);
  expect(readdirSync(fork.trainingServerDir).sort()).toEqual(['checkpoints', 'database']);
  expect(readFileSync(saved(fork, 'checkpoints', 'state'), 'utf8')).toBe('weights');
  // Each server changes its own from then on.
  writeFileSync(saved(fork, 'database'), 'another');
  expect(readFileSync(saved(source, 'database'), 'utf8')).toBe('one');
  expect(existsSync(forkRun(source, 6, `fork${counter++}`).trainingServerDir)).toBe(true);
});

it('reports which checkpoints there are when the one asked for is missing', () => {
  expect(textOf(() => forkRun(source, 5, 'other'))).toContain(
    `run '${source.runName}' has no checkpoint of iteration 5\n  Checkpoints: 3, 6.`,
  );
  expect(existsSync(join(base, 'other'))).toBe(false);
});

it('begins with no checkpoint that does not match its manifest, and leaves nothing behind', () => {
  writeFileSync(join(source.checkpoint(6), 'trainer.json'), '7');
  const text = textOf(() => forkRun(source, 6, 'other'));
  expect(text).toContain('the checkpoint of iteration 6 is damaged');
  expect(text).toContain('Checkpoints: 3.');
  expect(readdirSync(base).filter((name) => name === 'other' || name.startsWith('.'))).toEqual([]);
});

it('never touches a run that is there', () => {
  const before = readFileSync(source.record, 'utf8');
  expect(textOf(() => forkRun(source, 3, source.runName))).toContain(`run '${source.runName}' already exists`);
  expect(readFileSync(source.record, 'utf8')).toBe(before);
  expect(() => forkRun(source, 3, '../x')).toThrow('is not a valid run name');
});

it('records at its source the checkpoints that forks may use, since they may need remote data', () => {
  const before = checkpointsOfForks(source);
  const others = (): string[] => checkpointsOfForks(source).filter((folder) => !before.includes(folder));
  const name = `fork${counter++}`;
  writeFileSync(join(base, 'notes.txt'), 'no run');
  const fork = forkRun(source, 6, name);
  expect(others()).toEqual([fork.checkpoint(6)]);
  const record = readFileSync(fork.record, 'utf8');
  writeFileSync(fork.record, '{');
  expect(others()).toEqual([fork.checkpoint(6)]);
  writeFileSync(fork.record, JSON.stringify({ ...(JSON.parse(record) as object), fork: undefined }));
  expect(others()).toEqual([]);
  // One that is being made is moved to its place while others look.
  const half = join(base, `.forking-${name}`, name);
  mkdirSync(join(base, `.forking-${name}`));
  renameSync(fork.dir, half);
  expect(others()).toEqual([join(half, 'checkpoints/000006'), fork.checkpoint(6)]);
  rmSync(join(base, `.forking-${name}`), { recursive: true });
  rmSync(join(base, 'notes.txt'));
});
