/** Facts about processes: when one started, the system's limits on this one, and words for its shell. */
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

/** The limit in bytes, as /proc/self/limits has it; null for none, or on systems without /proc. */
export function addressSpaceLimit(limits = ownLimits()): number | null {
  const found = /^Max address space\s+(\d+)\s/m.exec(limits)?.[1];
  return found === undefined ? null : Number(found);
}

function ownLimits(): string {
  try {
    return readFileSync('/proc/self/limits', 'utf8');
  } catch {
    return '';
  }
}

/** What to do about an error that says that memory could not be allocated under a limit; null for any other error, or without a limit. */
export function addressSpaceAdvice(error: unknown, limit = addressSpaceLimit()): string | null {
  const message = error instanceof Error ? error.message : String(error);
  if (limit === null || !/out of memory|cannot allocate|allocation failed|ENOMEM|bad_alloc/i.test(message)) return null;
  return `This shell limits the address space to ${(limit / 2 ** 30).toFixed(1)} GiB (ulimit -v), of which Node reserves many GiB. Lift the limit with \`ulimit -v unlimited\`, and limit memory by a cgroup or a container.`;
}

const TOO_MANY: ReadonlySet<unknown> = new Set(['EMFILE', 'ENFILE']);

/** The limit of this process, which Node has raised to what the system allows; null where it is not known (no /proc). */
export function maxOpenFiles(): number | null {
  try {
    return limitIn(readFileSync('/proc/self/limits', 'utf8'));
  } catch {
    return null;
  }
}

/** The limit in force, as /proc/self/limits has it; null for none. */
export function limitIn(limits: string): number | null {
  const found = /^Max open files\s+(\d+)\s/m.exec(limits)?.[1];
  return found === undefined ? null : Number(found);
}

/** What to do; `limit` is that of this process. */
export function openFilesAdvice(limit = maxOpenFiles()): string {
  const now = limit === null ? '' : ` (now ${limit})`;
  return `Let this process open more files and connections at once${now}: \`ulimit -Hn 65536; ulimit -n 65536\` in the shell that starts it, nofile in /etc/security/limits.conf, LimitNOFILE of a systemd unit, or --ulimit nofile of a container.`;
}

/** Whether an error, or what caused it, is that too many files are open. */
export function saysTooManyFiles(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth++) {
    if (TOO_MANY.has((at as NodeJS.ErrnoException).code)) return true;
  }
  return false;
}

/** A warning where this process may open fewer than it needs; null where they are enough, or the limit is not known. */
export function tooFewFiles(who: string, needed: number, limit = maxOpenFiles()): string | null {
  if (limit === null || limit >= needed) return null;
  return `${who} may open ${limit} files and connections at once, and may need ${needed}: beyond the limit connections fail (EMFILE). ${openFilesAdvice(limit)}`;
}

/** A word as a POSIX shell reads it back: in single quotes if it holds anything that a shell would interpret. */
export function shellQuote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
