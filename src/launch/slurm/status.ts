/** Combines the statuses of runs with Slurm's view of submitted ones, and stops submitted runs. */
import { existsSync } from 'node:fs';
import { EditrlError } from '../../core/errors.js';
import { RunPaths } from '../../run/paths.js';
import type { FolderActivity } from '../../run/remove.js';
import { readState } from '../../run/state.js';
import { liveLock, readStatus, type RunStatus } from '../../run/status.js';
import { waitingRuns } from '../../run/claim/waiting.js';
import { liveSweeps } from '../sweep/lock.js';
import {
  describeJob,
  isUnderWay,
  readSubmissions,
  reconcile,
  reconcileState,
  stopJobs,
  type SlurmJob,
} from './queue.js';

export interface SlurmStatuses {
  readonly statuses: readonly RunStatus[];
  /**
   * Why Slurm could not be queried, one text per folder of runs. The statuses then come from the run directories alone.
   */
  readonly problems: readonly string[];
}

/**
 * The statuses of runs, corrected by facts that only Slurm has: the run waits in the queue, its node failed, it was
 * canceled. Also returns runs that were submitted from `alsoQueuedIn` folders and never began.
 */
export async function readStatuses(
  runs: readonly RunPaths[],
  alsoQueuedIn: readonly string[] = [],
): Promise<SlurmStatuses> {
  const problems: string[] = [];
  const jobs = new Map<string, ReadonlyMap<string, SlurmJob>>();
  for (const base of new Set([...runs.map((run) => run.baseExpDir), ...alsoQueuedIn])) {
    try {
      jobs.set(base, await reconcile(base));
    } catch (error) {
      if (!(error instanceof EditrlError)) throw error;
      problems.push(error.toText());
    }
  }
  const known = new Set(runs.map((run) => run.dir));
  const queued = alsoQueuedIn.flatMap((base) =>
    [...(jobs.get(base)?.keys() ?? [])].map((name) => new RunPaths(base, name)).filter((run) => !known.has(run.dir)),
  );
  const statuses = [...runs, ...queued].map((run) => corrected(run, jobs.get(run.baseExpDir)?.get(run.runName)));
  return { statuses, problems };
}

function corrected(run: RunPaths, job: SlurmJob | undefined): RunStatus {
  const status = readStatus(run);
  // A process that holds the run has priority, because a job that ended knows nothing of an attempt outside Slurm.
  if (job === undefined || status.state === 'unreadable') return status;
  if (!isUnderWay(job) && liveLock(run) !== null) return status;
  const { state, reason } = reconcileState(readState(run), job);
  return { ...status, state, reason, where: status.where ?? (isUnderWay(job) ? describeJob(job) : null) };
}

/**
 * A run that was submitted from one of these folders and has not begun. Undefined if there is none of this name. Raises
 * RunError for an unreadable record.
 */
export function submittedRun(name: string, folders: readonly string[]): RunPaths | undefined {
  return folders
    .filter((base) => readSubmissions(base).some(({ arrays }) => arrays.some(({ runs }) => runs.includes(name))))
    .map((base) => new RunPaths(base, name))
    .find((paths) => !existsSync(paths.record));
}

/**
 * Asks the waiting or running jobs of runs to end with `stopJobs`. Returns these jobs by run name. Raises RunError with
 * Slurm's message.
 */
export async function stopOnSlurm(runs: readonly RunPaths[], atOnce: boolean): Promise<ReadonlyMap<string, SlurmJob>> {
  const stopped = new Map<string, SlurmJob>();
  for (const base of new Set(runs.map((run) => run.baseExpDir))) {
    const jobs = await reconcile(base);
    for (const { runName } of runs.filter((run) => run.baseExpDir === base)) {
      const job = jobs.get(runName);
      if (job !== undefined && isUnderWay(job)) stopped.set(runName, job);
    }
  }
  await stopJobs([...stopped.values()], { atOnce });
  return stopped;
}

/**
 * Activity in a folder, apart from runs that processes hold: sweeps, runs that wait for other runs, and jobs that Slurm
 * has yet to start.
 * Raises RunError when runs were submitted from the folder and Slurm does not answer.
 */
export async function folderActivity(baseExpDir: string): Promise<FolderActivity[]> {
  if (!existsSync(baseExpDir)) return [];
  const jobs = [...(await reconcile(baseExpDir)).values()].filter(isUnderWay);
  return [
    ...liveSweeps([baseExpDir]).map(({ experiment }) => ({ what: `the sweep ${experiment}`, run: null })),
    ...waitingRuns(baseExpDir).map((run) => ({ what: `editrl run of ${run}`, run })),
    ...jobs.map((job) => ({ what: describeJob(job), run: job.run_name })),
  ];
}
