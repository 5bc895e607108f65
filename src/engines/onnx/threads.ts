/** How many threads a session has where nothing says so. */
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';

/** Linux says here whether two threads share a core. */
const SMT = '/sys/devices/system/cpu/smt/active';

let cores: number | null = null;

/**
 * The cores that this process may use; two hyperthreads are one. Sessions are told this number, for of itself the runtime ties its threads
 * to one core each, from the machine's first one on: those of two processes to the same ones, whatever else is idle, and to cores that the process
 * was told to leave alone.
 */
export function allCores(): number {
  cores ??= hyperthreaded() ? Math.ceil(availableParallelism() / 2) : availableParallelism();
  return cores;
}

function hyperthreaded(): boolean {
  try {
    return readFileSync(SMT, 'utf8').trim() === '1';
  } catch {
    // Another system, or a container that hides it: every processor counts.
    return false;
  }
}
