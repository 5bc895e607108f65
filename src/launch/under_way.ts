/** What is under way in a folder of runs beside those that processes hold: sweeps, runs that wait for others, and what Slurm has yet to start. */
import { existsSync } from 'node:fs';
import type { UnderWay } from '../run/remove.js';
import { waitingRuns } from '../run/waiting.js';
import { describeJob, isUnderWay, reconcile } from './slurm/queue.js';
import { liveSweeps } from './sweep/lock.js';

/** Raises RunError where runs were submitted from the folder and Slurm does not answer. */
export async function underWay(baseExpDir: string): Promise<UnderWay[]> {
  if (!existsSync(baseExpDir)) return [];
  const jobs = [...(await reconcile(baseExpDir)).values()].filter(isUnderWay);
  return [
    ...liveSweeps([baseExpDir]).map(({ experiment }) => ({ what: `the sweep ${experiment}`, run: null })),
    ...waitingRuns(baseExpDir).map((run) => ({ what: `editrl run of ${run}`, run })),
    ...jobs.map((job) => ({ what: describeJob(job), run: job.run_name })),
  ];
}
