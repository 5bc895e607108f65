/** A limit on this process's address space (`ulimit -v`): Node reserves more than it uses, and fails under one. */
import { readFileSync } from 'node:fs';

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
