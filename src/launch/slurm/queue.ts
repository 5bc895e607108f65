/** What Slurm says about submitted runs, and what that means for a run whose own records cannot know it. */
import type { RunState, RunStateName } from '../../run/state.js';
import { must, RunError } from '../../core/errors.js';
import { onCluster, runSlurm, type JobId } from './commands.js';
import { readSubmissions, type Submission } from './record.js';

/** `gone`: Slurm has ended the job, or has forgotten it. */
type Phase = 'queued' | 'running' | 'ended' | 'gone';

/** The job that a run was last submitted as. */
export interface SlurmJob {
  readonly run_name: string;
  /** In the notation of Slurm's programs: `12_3`; null if it was never submitted. */
  readonly job: string | null;
  /** The cluster that has it; null if it is the default one. */
  readonly cluster: string | null;
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
  const heard = await hear(arrays.map(({ cluster }) => cluster));
  for (const [cluster, { ids, tasks }] of heard) {
    const forgotten = arrays.filter((array) => array.cluster === cluster).flatMap(({ job_id }) => job_id ?? []);
    const missing = forgotten.filter((id) => !ids.has(id));
    if (missing.length > 0) for (const [id, report] of await askAccounting(missing, cluster)) tasks.set(id, report);
  }
  return jobsOf(submissions, heard);
}

/** The jobs of each cluster; ids count within a cluster. Raises RunError with Slurm's message. */
async function hear(clusters: readonly (string | null)[]): Promise<Map<string | null, Heard>> {
  const heard = new Map<string | null, Heard>();
  for (const cluster of new Set(clusters)) {
    const args = [...onCluster(cluster), '--noheader', '--array', '--states=all', `--format=${squeueFormat}`];
    heard.set(cluster, parseSqueue(await ask('squeue', args)));
  }
  return heard;
}

/** A judge's job that has not ended. */
export interface LiveJudge extends JobId {
  /** Waiting jobs that would end it. */
  readonly farewells: readonly JobId[];
  /** Ids of the arrays that have not ended and that those wait for. */
  readonly users: readonly string[];
}

/**
 * The judges' jobs of a folder of runs, by node file, without those that are being ended. Asks Slurm if a judge was ever submitted. Raises RunError
 * with Slurm's message when it does not answer.
 */
export async function liveJudges(baseExpDir: string): Promise<ReadonlyMap<string, LiveJudge>> {
  const submissions = readSubmissions(baseExpDir);
  const judges = submissions.flatMap((submission) => submission.judges);
  const heard = await hear(judges.map(({ cluster }) => cluster));
  const farewells = submissions.flatMap((submission) => submission.farewells);
  const live = new Map<string, LiveJudge>();
  for (const judge of judges) {
    const here = must(heard.get(judge.cluster), 'the jobs of a cluster');
    const phase = (id: string): Phase => {
      const states = [...here.tasks].flatMap(([task, { state }]) =>
        task.split('_')[0] === id ? [phaseOf(state)] : [],
      );
      return states.find((each) => each !== 'ended') ?? 'gone';
    };
    const isEnding = (id: string): boolean => here.tasks.get(id)?.state === 'COMPLETING';
    const find = (job: { readonly job_id: string | null; readonly name: string }): string | null =>
      job.job_id ?? here.names.get(job.name) ?? null;
    const id = find(judge);
    if (id === null || phase(id) === 'gone' || isEnding(id)) continue;
    const ends = farewells
      .filter(({ node_file, cluster }) => node_file === judge.node_file && cluster === judge.cluster)
      .flatMap((farewell) => {
        const found = find(farewell);
        return found === null || phase(found) === 'gone' ? [] : [{ id: found, after: farewell.after }];
      });
    if (ends.some((end) => phase(end.id) !== 'queued')) continue;
    live.set(judge.node_file, {
      id,
      cluster: judge.cluster,
      farewells: ends.map((end) => ({ id: end.id, cluster: judge.cluster })),
      users: [...new Set(ends.flatMap(({ after }) => after))].filter((array) => phase(array) !== 'gone'),
    });
  }
  return live;
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
  for (const cluster of new Set(jobs.map((job) => job.cluster))) {
    const ids = (phase: Phase): string[] =>
      jobs.flatMap((job) => (job.cluster === cluster && job.phase === phase && job.job !== null ? [job.job] : []));
    const asked = options.atOnce === true ? [] : ids('running');
    const cancelled = options.atOnce === true ? [...ids('queued'), ...ids('running')] : ids('queued');
    if (cancelled.length > 0) await ask('scancel', [...onCluster(cluster), ...cancelled]);
    if (asked.length > 0) await ask('scancel', [...onCluster(cluster), '--batch', '--signal=TERM', ...asked]);
  }
}

/** What squeue says of one cluster. */
interface Heard {
  /** By task. */
  readonly tasks: Map<string, TaskReport>;
  /** The ids of jobs. */
  readonly ids: ReadonlySet<string>;
  /** The jobs' ids by name. */
  readonly names: ReadonlyMap<string, string>;
}

/** Lines of squeue in `squeueFormat`. With --clusters it prints the cluster's name above them. */
export function parseSqueue(text: string): Heard {
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

function jobsOf(submissions: readonly Submission[], heard: ReadonlyMap<string | null, Heard>): Map<string, SlurmJob> {
  const jobs = new Map<string, SlurmJob>();
  // A later submission of a run replaces earlier ones.
  for (const array of submissions.flatMap((submission) => submission.arrays)) {
    const { names, tasks } = must(heard.get(array.cluster), 'the jobs of a cluster');
    const id = array.job_id ?? names.get(array.name) ?? null;
    for (const [index, run_name] of array.runs.entries()) {
      const job = id === null ? null : `${id}_${index}`;
      const task = job === null ? undefined : tasks.get(job);
      jobs.set(run_name, {
        run_name,
        job,
        cluster: array.cluster,
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
async function askAccounting(ids: readonly string[], cluster: string | null): Promise<Map<string, TaskReport>> {
  const format = ['--noheader', '--parsable2', '--allocations', '--format=JobID,State,NodeList'];
  const args = [...onCluster(cluster), ...format, `--jobs=${ids.join(',')}`];
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
