/** How many files, connections among them, this process may have open, and what to say where that is too few. */
import { readFileSync } from 'node:fs';

const TOO_MANY: ReadonlySet<unknown> = new Set(['EMFILE', 'ENFILE']);

/** The limit of this process, which Node has raised to what the system allows; null where it is not known (no /proc). */
export function mostOpenFiles(): number | null {
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
export function openFilesAdvice(limit = mostOpenFiles()): string {
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
export function tooFewFiles(who: string, needed: number, limit = mostOpenFiles()): string | null {
  if (limit === null || limit >= needed) return null;
  return `${who} may open ${limit} files and connections at once, and may need ${needed}: beyond the limit connections fail (EMFILE). ${openFilesAdvice(limit)}`;
}
