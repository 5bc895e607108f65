/** How many threads a session has where nothing says so. */
import { readFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';

/** Linux says here whether two threads share a core. */
const SMT = '/sys/devices/system/cpu/smt/active';

let cores: number | null = null;

/**
 * The number of cores that this process may use; two hyperthreads count as one. Sessions are given this number because by default the runtime pins
 * its threads to one core each, starting with the machine's first core: the threads of two processes would share the same cores while others are
 * idle, and would use cores that the process was told to avoid.
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
