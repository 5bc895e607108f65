/** Where the model of another run lies. */
import { join } from 'node:path';
import { CheckpointError } from '../core/errors.js';
import { latestWhole, type WholeCheckpoint } from '../run/checkpoints.js';
import { RunPaths } from '../run/paths.js';
import type { RunResolver } from '../models/reference.js';

/** Finds the newest whole checkpoint of a finished run; `onUsed` is told which one that is, at every use. */
export function runResolver(
  baseExpDir: string,
  onUsed: (run: string, checkpoint: WholeCheckpoint) => void = () => {},
): RunResolver {
  return (run) => {
    const whole = latestWhole(new RunPaths(baseExpDir, run));
    if (whole === null) {
      throw new CheckpointError(`run ${run} has no whole checkpoint`, {
        where: join(baseExpDir, run),
        next: 'Run its config again, then this one.',
      });
    }
    onUsed(run, whole);
    return whole.dir;
  };
}
