/** Calls Slurm's programs, records submissions, and queries Slurm for the state of submitted runs. */
import { execFile } from 'node:child_process';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { RunError } from '../../core/errors.js';
import { writeFileAtomic } from '../../core/files.js';
import { readJson, type RunState, type RunStateName } from '../../run/state.js';

type Program = 'sbatch' | 'squeue' | 'sacct' | 'scancel';

/** Result of calling one of Slurm's programs. */
export type SlurmResult =
  | { readonly kind: 'done'; readonly out: string }
  | { readonly kind: 'missing'; readonly words: string }
  | { readonly kind: 'refused'; readonly words: string };

const TIMEOUT_MS = 120_000;

/** Calls one of Slurm's programs. `out` is its trimmed output. */
export function runSlurm(program: Program, args: readonly string[]): Promise<SlurmResult> {
  return new Promise((done) => {
    execFile(program, [...args], { timeout: TIMEOUT_MS, maxBuffer: 1 << 28 }, (error, out, err) => {
      if (error === null) done({ kind: 'done', out });
      else if (error.code === 'ENOENT') done({ kind: 'missing', words: `${program} was not found` });
      else done({ kind: 'refused', words: err.trim() === '' ? `${program} failed: ${error.message}` : err.trim() });
    });
  });
}

/** Submits a batch script and returns the job's id. Raises RunError with sbatch's message. */
export async function submit(script: string): Promise<string> {
  const called = await runSlurm('sbatch', ['--parsable', script]);
  if (called.kind === 'missing') {
    throw new RunError("sbatch was not found: Slurm's programs are not on this machine's PATH", {
      next: "Do this on a login node of the cluster, or set launch.backend to 'local'.",
    });
  }
  if (called.kind === 'refused') {
    throw new RunError(`sbatch refused: ${called.words}`, {
      where: script,
      next: 'Correct launch.slurm in the config (account, partition, time, gres, mem, extra), then run the same command again. Jobs that Slurm accepted are not submitted twice.',
    });
  }
  const job = parseJobId(called.out);
  if (job !== null) return job;
  throw new RunError(`sbatch was expected to print the job's id, but printed ${JSON.stringify(called.out)}`, {
    where: script,
    next: 'See with squeue whether it was submitted, and what wraps sbatch on this machine.',
  });
}

/**
 * The job id in sbatch's output: the last line of the form `12345`, `12345;cluster` or `Submitted batch job 12345`.
 * Sites print banners before it. Null without such a line.
 */
export function parseJobId(out: string): string | null {
  const lines = out
    .split('\n')
    .map((line) => /^\s*(?:Submitted batch job )?(\d+)(?:;\S+)?\s*$/.exec(line)?.[1] ?? null);
  return lines.findLast((id) => id !== null) ?? null;
}

/*
 * Submissions are recorded in one folder each, below `<base_exp_dir>/.slurm/`, a name that no run can have. A folder
 * contains the batch scripts, the files of cells, and `jobs.json`, which maps runs to tasks.
 */

/** A submitted job array. */
export interface ArrayRecord {
  /** Slurm's name of the job, unique to this array. It identifies the job if its id was not recorded in time. */
  readonly name: string;
  /** Null until sbatch has answered. */
  readonly job_id: string | null;
  /** Run names by task index. */
  readonly runs: readonly string[];
}

export interface Submission {
  readonly format: 1;
  readonly submitted_at: string;
  readonly arrays: readonly ArrayRecord[];
}

export function submissionsDir(baseExpDir: string): string {
  return join(baseExpDir, '.slurm');
}

/** Replaces the record of a submission. */
export function writeSubmission(dir: string, submission: Submission): void {
  writeFileAtomic(join(dir, 'jobs.json'), `${JSON.stringify(submission, null, 2)}\n`);
}

/** Every submission below a folder of runs, oldest first. Raises RunError for an unreadable record. */
export function readSubmissions(baseExpDir: string): Submission[] {
  const dir = submissionsDir(baseExpDir);
  if (!existsSync(dir)) return [];
  return readdirSync(dir)
    .sort()
    .flatMap((name) => {
      const found = readJson(join(dir, name, 'jobs.json'));
      return found === null ? [] : [found as Submission];
    });
}

/** `gone`: the job has ended and Slurm has forgotten it. */
type Phase = 'queued' | 'running' | 'ended' | 'gone';

/** The last job that a run was submitted as. */
export interface SlurmJob {
  readonly run_name: string;
  /** The id in the notation of Slurm's programs: `12_3`. Null if the run was never submitted. */
  readonly job: string | null;
  readonly phase: Phase;
  /** Slurm's state, such as PENDING or NODE_FAIL. Empty if it has none. */
  readonly state: string;
  /** Slurm's reason why the job is pending. */
  readonly reason: string | null;
  readonly node: string | null;
}

/** Slurm's report of one task. */
interface TaskReport {
  readonly state: string;
  readonly reason: string | null;
  readonly node: string | null;
}

const phases: Readonly<Record<string, Phase>> = {
  PENDING: 'queued',
  REQUEUED: 'queued',
  REQUEUE_FED: 'queued',
  REQUEUE_HOLD: 'queued',
  RESV_DEL_HOLD: 'queued',
  SPECIAL_EXIT: 'queued',
  CONFIGURING: 'running',
  RUNNING: 'running',
  COMPLETING: 'running',
  RESIZING: 'running',
  SIGNALING: 'running',
  STAGE_OUT: 'running',
  STOPPED: 'running',
  SUSPENDED: 'running',
  BOOT_FAIL: 'ended',
  CANCELLED: 'ended',
  COMPLETED: 'ended',
  DEADLINE: 'ended',
  FAILED: 'ended',
  NODE_FAIL: 'ended',
  OUT_OF_MEMORY: 'ended',
  PREEMPTED: 'ended',
  REVOKED: 'ended',
  TIMEOUT: 'ended',
};

/** The state of a run whose job ended before the run could record its end, and the reason in words. */
const ends: Readonly<Record<string, readonly [RunStateName, string]>> = {
  BOOT_FAIL: ['failed', 'its node did not boot'],
  CANCELLED: ['interrupted', 'it was canceled'],
  COMPLETED: ['interrupted', 'it ended without the run being finished'],
  DEADLINE: ['interrupted', 'its deadline passed'],
  FAILED: ['failed', 'it failed'],
  NODE_FAIL: ['interrupted', 'its node failed'],
  OUT_OF_MEMORY: ['failed', 'it ran out of memory (launch.slurm.mem)'],
  PREEMPTED: ['interrupted', 'it was preempted'],
  REVOKED: ['interrupted', 'it was revoked'],
  TIMEOUT: ['interrupted', 'its time limit came before it had stopped (launch.slurm.signal_before_s)'],
};

const squeueFormat = '%i|%j|%T|%r|%N';

/**
 * The jobs of all runs submitted from a folder of runs, by run name. Empty, without querying Slurm, if nothing was ever
 * submitted.
 * Raises RunError with Slurm's message when Slurm is not installed or does not answer.
 */
export async function reconcile(baseExpDir: string): Promise<Map<string, SlurmJob>> {
  const arrays = readSubmissions(baseExpDir).flatMap((submission) => submission.arrays);
  if (arrays.length === 0) return new Map();
  const { ids, names, tasks } = parseSqueue(
    await callSlurm('squeue', ['--noheader', '--array', '--states=all', `--format=${squeueFormat}`]),
  );
  const forgotten = arrays.flatMap(({ job_id }) => job_id ?? []).filter((id) => !ids.has(id));
  if (forgotten.length > 0) for (const [task, report] of await queryAccounting(forgotten)) tasks.set(task, report);
  // Later submissions of a run replace earlier ones.
  const jobs = new Map<string, SlurmJob>();
  for (const array of arrays) {
    const id = array.job_id ?? names.get(array.name) ?? null;
    for (const [index, run_name] of array.runs.entries()) {
      const job = id === null ? null : `${id}_${index}`;
      const task = job === null ? undefined : tasks.get(job);
      jobs.set(run_name, {
        run_name,
        job,
        // An unknown state, from a later version of Slurm, counts as running, so that nothing is submitted twice.
        phase: task === undefined ? 'gone' : (phases[task.state] ?? 'running'),
        state: task?.state ?? '',
        reason: task?.reason ?? null,
        node: task?.node ?? null,
      });
    }
  }
  return jobs;
}

/** Whether a job is waiting or running. */
export function isUnderWay(job: SlurmJob): boolean {
  return job.phase === 'queued' || job.phase === 'running';
}

/** The job in a few words for a table: `Slurm 12_3 on node7`, `Slurm 12_3 pending (Priority)`. */
export function describeJob(job: SlurmJob): string {
  const name = `Slurm ${job.job ?? '(not submitted)'}`;
  if (job.phase === 'running') return `${name} on ${job.node ?? '?'}`;
  if (job.phase === 'queued') {
    return `${name} ${job.state.toLowerCase()}${job.reason === null ? '' : ` (${job.reason})`}`;
  }
  return `${name} ${job.state === '' ? 'ended' : job.state.toLowerCase()}`;
}

/**
 * The state of a run, given its job: its `state.json`, corrected by facts that only Slurm has, such as a failed node or
 * a cancellation.
 * `state` is null for a run that has not begun. Do not call this for a run that a live process outside of its job holds.
 */
export function reconcileState(
  state: RunState | null,
  job: SlurmJob,
): { readonly state: RunStateName; readonly reason: string | null } {
  const recorded =
    state === null ? { state: 'queued' as const, reason: null } : { state: state.state, reason: state.reason };
  if (recorded.state === 'finished') return recorded;
  if (job.phase === 'queued') return { state: 'queued', reason: describeJob(job) };
  if (job.phase === 'running') {
    return recorded.state === 'running' || recorded.state === 'waiting'
      ? recorded
      : { state: 'running', reason: describeJob(job) };
  }
  // The run's own record of its end is more precise than Slurm's.
  if (recorded.state === 'failed' || recorded.state === 'interrupted') return recorded;
  const [end, why] = ends[job.state] ?? ['interrupted', 'the job is no longer known to Slurm'];
  return { state: end, reason: `${job.job === null ? 'it was never submitted' : `Slurm job ${job.job}: ${why}`}` };
}

/**
 * Ends jobs: cancels waiting ones, and asks running ones to checkpoint and end, without a deadline. With `atOnce`,
 * Slurm may kill them after its grace time (KillWait). Raises RunError with scancel's message.
 */
export async function stopJobs(jobs: readonly SlurmJob[], options: { readonly atOnce?: boolean } = {}): Promise<void> {
  const ids = (phase: Phase): string[] =>
    jobs.flatMap((job) => (job.phase === phase && job.job !== null ? [job.job] : []));
  const running = options.atOnce === true ? [] : ids('running');
  const cancelled = options.atOnce === true ? [...ids('queued'), ...ids('running')] : ids('queued');
  if (cancelled.length > 0) await callSlurm('scancel', cancelled);
  if (running.length > 0) await callSlurm('scancel', ['--batch', '--signal=TERM', ...running]);
}

interface SqueueReport {
  /** By task. */
  readonly tasks: Map<string, TaskReport>;
  /** The ids of jobs. */
  readonly ids: ReadonlySet<string>;
  /** The jobs' ids by name. */
  readonly names: ReadonlyMap<string, string>;
}

/** Parses lines of squeue in `squeueFormat`. */
function parseSqueue(text: string): SqueueReport {
  const tasks = new Map<string, TaskReport>();
  const ids = new Set<string>();
  const names = new Map<string, string>();
  for (const line of text.split('\n').filter((each) => each.includes('|'))) {
    const [task, name, state, reason, node] = line.split('|');
    const id = task.split('_')[0];
    ids.add(id);
    names.set(name, id);
    tasks.set(task, { state, reason: reason === 'None' ? null : reason, node: node === '' ? null : node });
  }
  return { tasks, ids, names };
}

/** Parses lines of `sacct --parsable2 --format=JobID,State,NodeList`. */
export function parseSacct(text: string): Map<string, TaskReport> {
  const tasks = new Map<string, TaskReport>();
  for (const line of text.split('\n').filter((each) => each !== '')) {
    const [task, state, node] = line.split('|');
    // `CANCELLED by 1000`
    tasks.set(task, { state: state.split(' ')[0], reason: null, node: /^None/.test(node) ? null : node });
  }
  return tasks;
}

/** Jobs that the controller has dropped, from accounting. Empty if the cluster has no accounting. */
async function queryAccounting(ids: readonly string[]): Promise<Map<string, TaskReport>> {
  const format = ['--noheader', '--parsable2', '--allocations', '--format=JobID,State,NodeList'];
  const called = await runSlurm('sacct', [...format, `--jobs=${ids.join(',')}`]);
  return called.kind === 'done' ? parseSacct(called.out) : new Map();
}

async function callSlurm(program: 'squeue' | 'scancel', args: readonly string[]): Promise<string> {
  const called = await runSlurm(program, args);
  if (called.kind === 'done') return called.out;
  throw new RunError(called.kind === 'missing' ? called.words : `${program} refused: ${called.words}`, {
    next: 'Jobs of these runs were submitted to Slurm: ask on a machine of that cluster, while its controller answers.',
  });
}
