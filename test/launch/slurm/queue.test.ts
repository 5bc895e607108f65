import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  describeJob,
  parseJobId,
  reconcile,
  reconcileState,
  stopJobs,
  submissionsDir,
  writeSubmission,
  type SlurmJob,
} from '../../../src/launch/slurm/queue.js';
import type { RunState, RunStateName } from '../../../src/run/state.js';

let base: string;
beforeEach(() => {
  base = mkdtempSync(join(tmpdir(), 'editrl-queue-'));
});
afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(base, { recursive: true, force: true });
});

/** Programs of Slurm that answer what they are told to, and write down how they were called. */
function fakeSlurm(answers: Readonly<Record<string, string>>): void {
  const bin = join(base, 'bin');
  mkdirSync(bin, { recursive: true });
  for (const [program, body] of Object.entries(answers)) {
    writeFileSync(join(bin, program), `#!/bin/sh\necho "${program} $*" >>'${base}/calls'\n${body}\n`, { mode: 0o755 });
  }
  vi.stubEnv('PATH', `${bin}:/usr/bin:/bin`);
}

function submitted(id: string, arrays: readonly { job_id: string | null; name?: string; runs: string[] }[]): void {
  writeSubmission(join(submissionsDir(base), id), {
    format: 1,
    submitted_at: '',
    arrays: arrays.map((array, index) => ({ name: `${id}-${index}`, ...array })),
  });
}

const job = (change: Partial<SlurmJob>): SlurmJob => ({
  run_name: 'a',
  job: '12_0',
  phase: 'running',
  state: 'RUNNING',
  reason: null,
  node: 'node7',
  ...change,
});
const state = (name: RunStateName, reason: string | null = null): RunState => ({
  state: name,
  iteration: 3,
  num_iterations: 9,
  heartbeat: '',
  reason,
  stopped_early: false,
});

describe('what Slurm says about runs', () => {
  it('is asked of no one if nothing was submitted', async () => {
    vi.stubEnv('PATH', '/nowhere');
    expect(await reconcile(base)).toEqual(new Map());
  });

  it('comes from squeue by task, from accounting where squeue forgot, and from the last submission of a run', async () => {
    submitted('2026a', [{ job_id: '11', runs: ['a', 'b'] }]);
    submitted('2026b', [{ job_id: '12', runs: ['a', 'c'] }]);
    fakeSlurm({
      squeue: "printf '12_0|n|RUNNING|None|node7\\n12_1|n|PENDING|Priority|\\n99|other|RUNNING|None|x\\n'",
      sacct: "printf '11_1|CANCELLED by 1000|None assigned\\n'",
    });
    const jobs = await reconcile(base);
    expect([...jobs.keys()]).toEqual(['a', 'b', 'c']);
    expect(jobs.get('a')).toEqual(job({}));
    expect(jobs.get('b')).toMatchObject({ job: '11_1', phase: 'ended', state: 'CANCELLED' });
    expect(jobs.get('c')).toMatchObject({ job: '12_1', phase: 'queued', reason: 'Priority', node: null });
  });

  it('finds by its name a job whose id was not written down any more', async () => {
    submitted('2026a', [{ job_id: null, name: 'lost', runs: ['a'] }]);
    fakeSlurm({ squeue: "printf '31_0|lost|PENDING|Resources|\\n'" });
    expect((await reconcile(base)).get('a')).toMatchObject({ job: '31_0', phase: 'queued' });
    fakeSlurm({ squeue: '' });
    expect((await reconcile(base)).get('a')).toMatchObject({ job: null, phase: 'gone' });
  });

  it('is nothing where jobs are forgotten and no accounts are kept', async () => {
    submitted('2026a', [{ job_id: '11', runs: ['a'] }]);
    fakeSlurm({ squeue: '', sacct: 'echo disabled >&2; exit 1' });
    expect((await reconcile(base)).get('a')).toMatchObject({ phase: 'gone', state: '' });
  });

  it("is an error in Slurm's words if it does not answer", async () => {
    submitted('2026a', [{ job_id: '11', runs: ['a'] }]);
    fakeSlurm({ squeue: 'echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1' });
    await expect(reconcile(base)).rejects.toThrow(
      'squeue refused: slurm_load_jobs error: Unable to contact slurm controller',
    );
  });

  it('takes a word that it does not know for a job that continues', async () => {
    submitted('2026a', [{ job_id: '11', runs: ['a'] }]);
    fakeSlurm({ squeue: "printf '11_0|n|TELEPORTING|None|\\n'" });
    expect((await reconcile(base)).get('a')).toMatchObject({ phase: 'running' });
  });
});

describe('the job that sbatch names', () => {
  it.each([
    ['4711\n', '4711'],
    ['4711;alpha\n', '4711'],
    ['\n-----\n   Welcome to the Example3 Supercomputer\n--> Verifying access (gpu)...OK\n4711\n', '4711'],
    ['Submitted batch job 4711\n', '4711'],
    ['2026\nquota: 90 of 100 hours\n4711\r\n\n', '4711'],
    ['', null],
    ['sbatch: queued\n', null],
    ['job 4711 was accepted\n', null],
    ['47.11\n', null],
  ])('in %j is %s', (out, id) => {
    expect(parseJobId(out)).toBe(id);
  });
});

describe('the state of a run with a job', () => {
  it.each([
    [state('interrupted', 'stopped on request'), { phase: 'queued', state: 'PENDING', reason: 'BeginTime' }, 'queued'],
    [null, { phase: 'queued', state: 'PENDING', reason: 'Dependency' }, 'queued'],
    [state('queued'), { phase: 'running' }, 'running'],
    [state('waiting', 'for the judge'), { phase: 'running' }, 'waiting'],
    [state('running'), { phase: 'ended', state: 'NODE_FAIL' }, 'interrupted'],
    [state('running'), { phase: 'ended', state: 'OUT_OF_MEMORY' }, 'failed'],
    [state('queued'), { phase: 'ended', state: 'CANCELLED' }, 'interrupted'],
    [state('failed', 'a worker died'), { phase: 'ended', state: 'FAILED' }, 'failed'],
    [state('finished'), { phase: 'ended', state: 'COMPLETED' }, 'finished'],
    [state('running'), { phase: 'gone', state: '' }, 'interrupted'],
  ] as const)('%j with %j is %s', (said, change, expected) => {
    expect(reconcileState(said, job(change)).state).toBe(expected);
  });

  it('explains why, in words', () => {
    expect(reconcileState(state('running'), job({ phase: 'ended', state: 'TIMEOUT' })).reason).toBe(
      'Slurm job 12_0: its time limit came before it had stopped (launch.slurm.signal_before_s)',
    );
    expect(reconcileState(state('failed', 'a worker died'), job({ phase: 'ended', state: 'FAILED' })).reason).toBe(
      'a worker died',
    );
    expect(describeJob(job({ phase: 'queued', state: 'PENDING', reason: 'Priority' }))).toBe(
      'Slurm 12_0 pending (Priority)',
    );
    expect(describeJob(job({}))).toBe('Slurm 12_0 on node7');
  });
});

describe('stopping', () => {
  it('takes waiting jobs out of the queue, asks running ones, and leaves ended ones alone', async () => {
    fakeSlurm({ scancel: '' });
    const jobs = [job({}), job({ job: '12_1', phase: 'queued' }), job({ job: '12_2', phase: 'ended' })];
    await stopJobs(jobs);
    await stopJobs(jobs, { atOnce: true });
    expect(readFileSync(join(base, 'calls'), 'utf8')).toBe(
      'scancel 12_1\nscancel --batch --signal=TERM 12_0\nscancel 12_1 12_0\n',
    );
  });
});
