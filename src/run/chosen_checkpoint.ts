/** Which checkpoint of a run a person means. */
import { CheckpointError } from '../core/errors.js';
import { latestWhole, listCheckpoints, requireWhole, type WholeCheckpoint } from './checkpoints.js';
import type { RunPaths } from './paths.js';

/** The checkpoint of an iteration, or the last complete one. Raises CheckpointError if there is none. */
export function chosenCheckpoint(paths: RunPaths, iteration: number | null): WholeCheckpoint {
  const there = listCheckpoints(paths);
  if (iteration !== null && there.includes(iteration)) {
    const dir = paths.checkpoint(iteration);
    requireWhole(dir, iteration);
    return { iteration, dir, problems: [] };
  }
  const latest = iteration === null ? latestWhole(paths) : null;
  if (latest !== null) return latest;
  throw new CheckpointError(
    `run ${paths.runName} has no ${iteration === null ? 'whole checkpoint' : `checkpoint of iteration ${iteration}`}`,
    {
      where: paths.checkpointsDir,
      next: there.length === 0 ? 'Train it further first.' : `There are checkpoints of ${there.join(', ')}.`,
    },
  );
}
