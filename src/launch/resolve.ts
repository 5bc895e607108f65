/** Where the model of another run lies. */
import type { WholeCheckpoint } from '../run/checkpoints.js';
import { parentCheckpoint } from '../run/parents.js';
import type { PlainObject } from '../run/record.js';
import type { RunResolver } from '../models/reference.js';

/**
 * Finds the checkpoint of a finished run that is used: the one that `recorded` parents pin, else the newest whole one. `onUsed` is told
 * at every use.
 */
export function runResolver(
  baseExpDir: string,
  recorded: () => readonly PlainObject[] = () => [],
  onUsed: (run: string, checkpoint: WholeCheckpoint) => void = () => {},
): RunResolver {
  return (run) => {
    const whole = parentCheckpoint(baseExpDir, run, recorded());
    onUsed(run, whole);
    return whole.dir;
  };
}
