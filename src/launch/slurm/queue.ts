/** What Slurm says about submitted runs, and what that means for a run whose own records cannot know it. */
import type { RunState, RunStateName } from '../../run/state.js';
import { RunError } from '../../core/errors.js';
import { runSlurm } from './commands.js';
import { readSubmissions, type ArrayRecord, type Submission } from './record.js';

/** `gone`: Slurm has ended the job, or has forgotten it. */
type Phase = 'queued' | 'running' | 'ended' | 'gone';

/** The job that a run was last submitted as. */
export interface SlurmJob {
  readonly run_name: string;
  /** In the notation of Slurm's programs: `12_3`; null if it was never submitted. */
  readonly job: string | null;
  readonly phase: Phase;
  /** Slurm's state, such as PENDING or NODE_FAIL; '' if it has none. */
  readonly state: string;
  /** Slurm's reason why it is pending. */
  readonly reason: string | null;
  readonly node: string | null;
}

/** What Slurm says of one task. */
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

/** The state, and its reason in words, of a run whose job ended before the run could record its end. */
const ends: Readonly<Record<string, readonly [RunStateName, string]>> = {
  BOOT_FAIL: ['failed', 'its node did not boot'],
  CANCELLED: ['interrupted', 'it was cancelled'],
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
 * The jobs of all runs submitted from a folder of runs, by run name; empty, without asking Slurm, if nothing was ever submitted. Raises RunError,
 * with Slurm's message, when Slurm is not installed or does not answer.
 */
export async function reconcile(baseExpDir: string): Promise<Map<string, SlurmJob>> {
  const submissions = readSubmissions(baseExpDir);
  const arrays = submissions.flatMap((submission) => submission.arrays);
  if (arrays.length === 0) return new Map();
  const squeue = await ask('squeue', ['--noheader', '--array', '--states=all', `--format=${squeueFormat}`]);
  const heard = parseSqueue(squeue);
  const forgotten = arrays.filter(({ job_id }) => job_id !== null && !heard.ids.has(job_id));
  const older = forgotten.length === 0 ? new Map<string, TaskReport>() : await askAccounting(forgotten);
  return jobsOf(submissions, { ids: heard.ids, names: heard.names, tasks: new Map([...older, ...heard.tasks]) });
}

/** Jobs that have not ended, of the judges submitted from a folder of runs. */
export interface LiveJudges {
  /** The jobs that serve: their ids by node file. */
  readonly serving: ReadonlyMap<string, string>;
  /** The jobs that will end them: their ids by node file, in the order of their submissions. */
  readonly farewells: ReadonlyMap<string, readonly string[]>;
}

/** Asks Slurm if a judge was ever submitted. Raises RunError with Slurm's message when it does not answer. */
export async function liveJudges(baseExpDir: string): Promise<LiveJudges> {
  const submissions = readSubmissions(baseExpDir);
  const judges = submissions.flatMap((submission) => submission.judges);
  if (judges.length === 0) return { serving: new Map(), farewells: new Map() };
  const { tasks, names } = parseSqueue(
    await ask('squeue', ['--noheader', '--array', '--states=all', `--format=${squeueFormat}`]),
  );
  const live = (job: { readonly job_id: string | null; readonly name: string }): string[] => {
    const id = job.job_id ?? names.get(job.name);
    const state = id === undefined ? undefined : tasks.get(id)?.state;
    return id !== undefined && state !== undefined && phaseOf(state) !== 'ended' ? [id] : [];
  };
  const farewells = new Map<string, string[]>();
  for (const farewell of submissions.flatMap((submission) => submission.farewells ?? [])) {
    const { node_file } = farewell;
    farewells.set(node_file, [...(farewells.get(node_file) ?? []), ...live(farewell)]);
  }
  return {
    serving: new Map(judges.flatMap((judge) => live(judge).map((id) => [judge.node_file, id] as const))),
    farewells,
  };
}

/** Whether a job is waiting or running. */
export function isUnderWay(job: SlurmJob): boolean {
  return job.phase === 'queued' || job.phase === 'running';
}

/** The job in a few words, for a table: `Slurm 12_3 on node7`, `Slurm 12_3 pending (Priority)`. */
export function describeJob(job: SlurmJob): string {
  const name = `Slurm ${job.job ?? '(not submitted)'}`;
  if (job.phase === 'running') return `${name} on ${job.node ?? '?'}`;
  if (job.phase === 'queued') {
    return `${name} ${job.state.toLowerCase()}${job.reason === null ? '' : ` (${job.reason})`}`;
  }
  return `${name} ${job.state === '' ? 'ended' : job.state.toLowerCase()}`;
}

/**
 * The state of a run, given its job: that of `state.json`, corrected for what only Slurm knows (it waits in the queue, its node failed, it was
 * cancelled). `state` is null for a run that has not begun. Not for a run that a live process holds outside of its job.
 */
export function reconcileState(
  state: RunState | null,
  job: SlurmJob,
): { readonly state: RunStateName; readonly reason: string | null } {
  const said =
    state === null ? { state: 'queued' as const, reason: null } : { state: state.state, reason: state.reason };
  if (said.state === 'finished') return said;
  if (job.phase === 'queued') return { state: 'queued', reason: describeJob(job) };
  if (job.phase === 'running') {
    return said.state === 'running' || said.state === 'waiting' ? said : { state: 'running', reason: describeJob(job) };
  }
  // What the run itself recorded at its end says more than Slurm does.
  if (said.state === 'failed' || said.state === 'interrupted') return said;
  const [end, why] = ends[job.state] ?? ['interrupted', 'Slurm knows it no more'];
  return { state: end, reason: `${job.job === null ? 'it was never submitted' : `Slurm job ${job.job}: ${why}`}` };
}

/**
 * Ends jobs: a waiting one leaves the queue, a running one is asked to checkpoint and end, without a deadline. With `atOnce`, Slurm may end it after
 * its own grace time (KillWait). Raises RunError with scancel's message.
 */
export async function stopJobs(jobs: readonly SlurmJob[], options: { readonly atOnce?: boolean } = {}): Promise<void> {
  const ids = (phase: Phase): string[] =>
    jobs.flatMap((job) => (job.phase === phase && job.job !== null ? [job.job] : []));
  const asked = options.atOnce === true ? [] : ids('running');
  const cancelled = options.atOnce === true ? [...ids('queued'), ...ids('running')] : ids('queued');
  if (cancelled.length > 0) await ask('scancel', cancelled);
  if (asked.length > 0) await ask('scancel', ['--batch', '--signal=TERM', ...asked]);
}

/** Lines of squeue in `squeueFormat`: by task, the ids of jobs, and the jobs' ids by name. */
export function parseSqueue(text: string): {
  readonly tasks: ReadonlyMap<string, TaskReport>;
  readonly ids: ReadonlySet<string>;
  readonly names: ReadonlyMap<string, string>;
} {
  const tasks = new Map<string, TaskReport>();
  const ids = new Set<string>();
  const names = new Map<string, string>();
  for (const line of text.split('\n').filter((each) => each !== '')) {
    const [task, name, state, reason, node] = line.split('|');
    const id = task.split('_')[0];
    ids.add(id);
    names.set(name, id);
    tasks.set(task, { state, reason: reason === 'None' ? null : reason, node: node === '' ? null : node });
  }
  return { tasks, ids, names };
}

/** Lines of `sacct --parsable2 --format=JobID,State,NodeList`. */
export function parseSacct(text: string): Map<string, TaskReport> {
  const tasks = new Map<string, TaskReport>();
  for (const line of text.split('\n').filter((each) => each !== '')) {
    const [task, state, node] = line.split('|');
    // `CANCELLED by 1000`
    tasks.set(task, { state: state.split(' ')[0], reason: null, node: /^None/.test(node) ? null : node });
  }
  return tasks;
}

function jobsOf(submissions: readonly Submission[], heard: ReturnType<typeof parseSqueue>): Map<string, SlurmJob> {
  const jobs = new Map<string, SlurmJob>();
  // A later submission of a run replaces earlier ones.
  for (const array of submissions.flatMap((submission) => submission.arrays)) {
    const id = array.job_id ?? heard.names.get(array.name) ?? null;
    for (const [index, run_name] of array.runs.entries()) {
      const job = id === null ? null : `${id}_${index}`;
      const task = job === null ? undefined : heard.tasks.get(job);
      jobs.set(run_name, {
        run_name,
        job,
        phase: task === undefined ? 'gone' : phaseOf(task.state),
        state: task?.state ?? '',
        reason: task?.reason ?? null,
        node: task?.node ?? null,
      });
    }
  }
  return jobs;
}

/** A state that only a later Slurm version has counts as running, so that nothing is submitted twice. */
function phaseOf(state: string): Phase {
  return phases[state] ?? 'running';
}

/** What accounting knows of jobs that the controller has dropped; empty if the cluster has no accounting. */
async function askAccounting(arrays: readonly ArrayRecord[]): Promise<Map<string, TaskReport>> {
  const ids = arrays.flatMap(({ job_id }) => job_id ?? []).join(',');
  const args = ['--noheader', '--parsable2', '--allocations', '--format=JobID,State,NodeList', `--jobs=${ids}`];
  const called = await runSlurm('sacct', args);
  return called.kind === 'done' ? parseSacct(called.out) : new Map();
}

async function ask(program: 'squeue' | 'scancel', args: readonly string[]): Promise<string> {
  const called = await runSlurm(program, args);
  if (called.kind === 'done') return called.out;
  throw new RunError(called.kind === 'missing' ? called.words : `${program} refused: ${called.words}`, {
    next: 'Jobs of these runs were submitted to Slurm: ask on a machine of that cluster, while its controller answers.',
  });
}
