/** Telling a process from a later one that was given the same number. */
import { readFileSync } from 'node:fs';
import { RunError } from './errors.js';

/** Start time of a live process: field 22 of `/proc/<pid>/stat`; '' where there is no `/proc`; null when it is gone. */
export function processStart(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the command in parentheses and may hold spaces; the third follows the last parenthesis.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    const zombieOrDead = fields[0] === 'Z' || fields[0] === 'X';
    return zombieOrDead ? null : fields[19];
  } catch (cause) {
    if (process.platform === 'linux') return null;
    try {
      process.kill(pid, 0);
      return '';
    } catch (refused) {
      if ((refused as NodeJS.ErrnoException).code === 'EPERM') return '';
      if ((refused as NodeJS.ErrnoException).code === 'ESRCH') return null;
      throw new RunError(`cannot ask for process ${pid}`, { cause });
    }
  }
}
