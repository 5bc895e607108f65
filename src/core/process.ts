/** Facts about processes: start times, limits of this process, and shell quoting. */
import { readFileSync } from 'node:fs';
import { RunError } from './errors.js';

/** Start time of a live process: field 22 of `/proc/<pid>/stat`. '' without `/proc`, null if it has ended. */
export function processStart(pid: number): string | null {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The second field is the command in parentheses and may contain spaces. The third follows the last parenthesis.
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
      throw new RunError(`cannot check process ${pid}`, { cause });
    }
  }
}

/** The limit in bytes by /proc/self/limits. Null if there is none, or no /proc. */
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

/** Advice for an out-of-memory error under an address space limit. Null for any other error, or without a limit. */
export function addressSpaceAdvice(error: unknown, limit = addressSpaceLimit()): string | null {
  const message = error instanceof Error ? error.message : String(error);
  if (limit === null || !/out of memory|cannot allocate|allocation failed|ENOMEM|bad_alloc/i.test(message)) return null;
  return `This shell limits the address space to ${(limit / 2 ** 30).toFixed(1)} GiB (ulimit -v), of which Node reserves many GiB. Lift the limit with \`ulimit -v unlimited\`, and limit memory by a cgroup or a container.`;
}

const TOO_MANY: ReadonlySet<unknown> = new Set(['EMFILE', 'ENFILE']);

/** The limit of this process, which Node has raised to the system's maximum. Null if unknown (no /proc). */
export function maxOpenFiles(): number | null {
  try {
    return limitIn(readFileSync('/proc/self/limits', 'utf8'));
  } catch {
    return null;
  }
}

/** The current limit by /proc/self/limits. Null for none. */
export function limitIn(limits: string): number | null {
  const found = /^Max open files\s+(\d+)\s/m.exec(limits)?.[1];
  return found === undefined ? null : Number(found);
}

/** Advice for too many open files. `limit` is this process's limit. */
export function openFilesAdvice(limit = maxOpenFiles()): string {
  const now = limit === null ? '' : ` (now ${limit})`;
  return `Let this process open more files and connections at once${now}: \`ulimit -Hn 65536; ulimit -n 65536\` in the shell that starts it, nofile in /etc/security/limits.conf, LimitNOFILE of a systemd unit, or --ulimit nofile of a container.`;
}

/** Whether an error, or one of its causes, is too many open files. */
export function saysTooManyFiles(error: unknown): boolean {
  for (let at = error, depth = 0; at instanceof Error && depth < 8; at = at.cause, depth++) {
    if (TOO_MANY.has((at as NodeJS.ErrnoException).code)) return true;
  }
  return false;
}

/** A warning if this process may open fewer files than it needs. Null if they suffice, or the limit is unknown. */
export function tooFewFiles(who: string, needed: number, limit = maxOpenFiles()): string | null {
  if (limit === null || limit >= needed) return null;
  return `${who} may open ${limit} files and connections at once, but may need ${needed}. Beyond the limit, connections fail (EMFILE). ${openFilesAdvice(limit)}`;
}

/** Quotes a word for a POSIX shell if it contains anything that a shell would interpret. */
export function shellQuote(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}
