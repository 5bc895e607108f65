import { appendFileSync, chmodSync, mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { writeRun, type MadeRun } from './made_runs.js';
import { submissionsDir, writeSubmission } from '../../src/launch/slurm/queue.js';
import { listKeys, listRuns, type RunsRequest } from '../../src/web/run_list.js';
import { runOf, runPage } from '../../src/web/run_page.js';
import { RunsIndex } from '../../src/web/runs_index.js';
import { SeriesCache } from '../../src/web/series.js';
import { testFolders } from '../support/folder.js';

const folder = testFolders('index');
const indices: RunsIndex[] = [];
afterEach(() => {
  vi.unstubAllEnvs();
  for (const index of indices.splice(0)) index.close();
});

function made(name: string, more: Partial<MadeRun> = {}): MadeRun {
  return { name, state: 'finished', iteration: 10, numIterations: 10, ...more };
}

async function indexOf(...folders: readonly string[]) {
  const changes: string[][] = [];
  const index = new RunsIndex(
    folders,
    (ids) => changes.push([...ids].sort()),
    (error) => {
      throw error;
    },
  );
  indices.push(index);
  await index.look();
  return { index, changes };
}

/** Looks until runs that have ended were looked at, too. */
async function lookAgain(index: RunsIndex): Promise<void> {
  for (let i = 0; i < 5; i++) await index.look();
}

const request: RunsRequest = { filter: '', sort: 'name', descending: false, offset: 0, limit: 100, columns: [] };
const names = (index: RunsIndex, more: Partial<RunsRequest> = {}) =>
  listRuns(index, { ...request, ...more }).runs.map(({ name }) => name);

describe('an index of runs', () => {
  it('has the runs of all its folders, as their files say', async () => {
    const [one, two] = [folder(), folder()];
    writeRun(one, made('a', { level: 5 }));
    writeRun(two, made('a', { state: 'failed', reason: 'it broke', iteration: 4 }));
    const { index, changes } = await indexOf(one, two, join(two, 'not there'));
    const { runs, total, states, problems, unread } = listRuns(index, request);
    expect([total, states, problems, unread]).toEqual([2, { finished: 1, failed: 1 }, [], 0]);
    expect(runs.map(({ id, state, iteration, reason }) => [id, state, iteration, reason])).toEqual([
      ['0/a', 'finished', 10, null],
      ['1/a', 'failed', 4, 'it broke'],
    ]);
    expect(runs[0].held_out).toMatchObject({
      ...{ metric: 'validation/sampled/mean', before: 0, iteration: 10 },
      ...{
        label: expect.any(String) as string,
        scale: expect.stringMatching(/, (?:0 to \d+|lower is better)$/) as string,
      },
    });
    expect(runs[0].held_out?.after).toBeCloseTo(5 * (1 - Math.exp(-4)));
    expect(changes.flat()).toEqual(['0/a', '1/a']);
  });

  it('reports only new, changed and removed runs', async () => {
    const dir = folder();
    const paths = writeRun(dir, made('a'));
    writeRun(dir, made('b'));
    const { index, changes } = await indexOf(dir);
    await lookAgain(index);
    expect(changes.splice(0).flat()).toEqual(['0/a', '0/b']);
    appendFileSync(paths.metrics, '{"iteration":11,"reward/mean":7,"validation/sampled/mean":8}\n');
    appendFileSync(paths.metrics, '{"iteration":12,"reward/mean":7,"validation/sampled/mean":"NaN"}\n');
    appendFileSync(paths.metrics, '{"iteration":13,"reward/mean":7,"validation/sampled/mean":9}\n');
    await lookAgain(index);
    expect(changes.splice(0)).toEqual([['0/a']]);
    expect(index.get('0/a')?.status.reward).toBe(7);
    expect(index.get('0/a')?.heldOut?.after).toBe(9);
    rmSync(join(dir, 'b'), { recursive: true });
    writeRun(dir, made('c'));
    await lookAgain(index);
    expect(changes.flat().sort()).toEqual(['0/b', '0/c']);
    expect(names(index)).toEqual(['a', 'c']);
  });

  it('shows what another version wrote, what is half written, and what is not a run, as far as it goes', async () => {
    const dir = folder();
    writeFileSync(join(dir, 'a_file'), '');
    mkdirSync(join(dir, 'no_record'));
    const other = writeRun(dir, made('other_version'));
    writeFileSync(other.record, '{"format": 2, "settings": {}}');
    const torn = writeRun(dir, made('torn'));
    appendFileSync(torn.metrics, '{"iteration":11,"validation/sampled/mean":9');
    const halfState = writeRun(dir, made('half_state'));
    writeFileSync(halfState.state, '{"state": "runn');
    const wrongMetrics = writeRun(dir, made('wrong_metrics'));
    writeFileSync(wrongMetrics.metrics, 'validation/ is not JSON\n"validation/\n');
    rmSync(writeRun(dir, made('no_metrics')).metrics);
    const { index } = await indexOf(dir);
    const found = listRuns(index, request).runs.map(({ name, state }) => [name, state]);
    expect(found).toEqual([
      ['half_state', 'unreadable'],
      ['no_metrics', 'finished'],
      ['other_version', 'unreadable'],
      ['torn', 'finished'],
      ['wrong_metrics', 'unreadable'],
    ]);
    expect(index.get('0/torn')?.heldOut?.iterations.after).toBe(10);
  });

  it('follows a run whose folder is taken away while it is watched', async () => {
    const dir = folder();
    const paths = writeRun(dir, made('live', { state: 'running' }));
    const { index, changes } = await indexOf(dir);
    expect(index.get('0/live')?.status.state).toBe('dead');
    renameSync(paths.dir, `${paths.dir}.old-1`);
    await lookAgain(index);
    expect(names(index)).toEqual(['live.old-1']);
    expect(changes.flat()).toContain('0/live');
  });

  it('reads a run again once its files can be read again, though they be the same', async () => {
    const dir = folder();
    const paths = writeRun(dir, made('a'));
    const { index } = await indexOf(dir);
    renameSync(paths.metrics, `${paths.metrics}.kept`);
    mkdirSync(paths.metrics);
    await lookAgain(index);
    expect(index.get('0/a')?.status).toMatchObject({ state: 'unreadable' });
    rmSync(paths.metrics, { recursive: true });
    renameSync(`${paths.metrics}.kept`, paths.metrics);
    await lookAgain(index);
    expect(index.get('0/a')?.status.state).toBe('finished');
  });

  it('has runs that wait in the queue of Slurm without a folder, until they have one', async () => {
    const [dir, programs] = [folder(), folder()];
    writeRun(dir, made('begun', { state: 'running' }));
    const arrays = [{ name: 'editrl-x', job_id: '7', runs: ['begun', 'waits'] }];
    mkdirSync(join(submissionsDir(dir), 'one'), { recursive: true });
    writeSubmission(join(submissionsDir(dir), 'one'), { format: 1, submitted_at: '', arrays });
    const squeue = join(programs, 'squeue');
    writeFileSync(squeue, "#!/bin/sh\nprintf '7_0|n|RUNNING|None|node7\\n7_1|n|PENDING|Priority|\\n'\n");
    chmodSync(squeue, 0o755);
    vi.stubEnv('PATH', `${programs}:${process.env['PATH'] ?? ''}`);
    const { index, changes } = await indexOf(dir);
    expect(changes.flat()).toContain('0/waits');
    expect(listRuns(index, request)).toMatchObject({ total: 2, states: { queued: 1 }, problems: [] });
    const waits = index.get('0/waits');
    expect(waits?.status).toMatchObject({ state: 'queued', where: 'Slurm 7_1 pending (Priority)', iteration: 0 });
    const page = await runPage(index, new SeriesCache(), runOf(index, new URLSearchParams({ run: '0/waits' })));
    expect(page.actions).toEqual([
      { action: 'stop', command: `editrl stop waits --exp-dir ${dir}` },
      { action: 'stop_now', command: `editrl stop waits --exp-dir ${dir} --now` },
    ]);
    writeRun(dir, made('waits'));
    await lookAgain(index);
    expect(listRuns(index, request).runs.map(({ name, state }) => [name, state])).toContainEqual(['waits', 'finished']);
    expect(names(index)).toEqual(['begun', 'waits']);
  });

  it('reports which folder it cannot list', async () => {
    const file = join(folder(), 'no folder');
    writeFileSync(file, '');
    const { index } = await indexOf(file);
    expect(listRuns(index, request).problems).toEqual([`Cannot list ${file} (ENOTDIR)`]);
  });
});

describe('a list of runs', () => {
  async function three() {
    const dir = folder();
    writeRun(dir, made('one', { algorithm: { kl_coeff: 0 }, level: 6, seed: 1 }));
    writeRun(dir, made('two', { algorithm: { kl_coeff: 3e-4 }, level: 2, seed: 2 }));
    writeRun(
      dir,
      made('three', { algorithm: { kl_coeff: 1e-4, clip_range: 0.2 }, level: 4, iteration: 5, state: 'failed' }),
    );
    return (await indexOf(dir)).index;
  }

  it('is filtered by columns and settings', async () => {
    const index = await three();
    expect(names(index, { filter: 'kl_coeff>0' })).toEqual(['three', 'two']);
    expect(names(index, { filter: 'kl_coeff>0 state=finished' })).toEqual(['two']);
    expect(names(index, { filter: 't clip_range=null' })).toEqual(['two']);
    expect(names(index, { filter: 'progress<1' })).toEqual(['three']);
    expect(names(index, { filter: 'policy.model.run=sft_s seed!=1' })).toEqual(['two']);
    expect(() => names(index, { filter: 'kl_coef=1' })).toThrow("Did you mean 'algorithm.kl_coeff'?");
  });

  it('is sorted by columns and settings, and comes in parts', async () => {
    const index = await three();
    expect(names(index, { sort: 'held_out', descending: true })).toEqual(['one', 'three', 'two']);
    expect(names(index, { sort: 'kl_coeff' })).toEqual(['one', 'three', 'two']);
    expect(names(index, { sort: 'clip_range', descending: true })).toEqual(['three', 'one', 'two']);
    const part = listRuns(index, { ...request, sort: 'kl_coeff', offset: 1, limit: 1, columns: ['kl_coeff', 'seed'] });
    expect(part.runs.map(({ name, values }) => [name, values])).toEqual([['three', [1e-4, 1]]]);
    expect([part.total, part.matching, part.offset]).toEqual([3, 3, 1]);
  });

  it('knows what may be asked for, that which differs first', async () => {
    const keys = listKeys(await three()).map(({ key }) => key);
    expect(keys.slice(0, 3)).toEqual(['name', 'state', 'iteration']);
    expect(keys.indexOf('algorithm.kl_coeff')).toBeLessThan(keys.indexOf('policy.model.run'));
    expect(keys.filter((key) => key === 'num_iterations')).toHaveLength(1);
  });
});
