/** How a rank's death is told: what ended it, whether memory ran out, its last lines. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { constants } from 'node:os';
import { RunError } from '../core/errors.js';
import type { ChildExit } from './child.js';

/** So many of the last lines are shown; `lastLines` has more. */
const SHOWN_LINES = 20;
const DMESG_TIMEOUT_MS = 2000;

export interface RunFailure {
  readonly run: string;
  readonly rank: number;
  readonly processes: number;
  /** Null when a signal ended it, or when it hung. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** What happened to the rank, without its name: `ended with exit code 3`. */
  readonly reason: string;
  /** The last lines that it printed, oldest first. */
  readonly lastLines: readonly string[];
}

/** A worker died, hung or ended with a code other than 0. */
export class RunFailed extends RunError {
  readonly rank: number;
  /** The worker's own; `exitCode` is this process's. */
  readonly workerExitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly lastLines: readonly string[];
  /** One sentence, for `state.json` and tables. */
  readonly reason: string;

  constructor(failure: RunFailure) {
    const who = failure.processes > 1 ? `rank ${failure.rank} of ${failure.processes}` : `rank ${failure.rank}`;
    const reason = `${who} ${failure.reason}`;
    const shown = failure.lastLines.slice(-SHOWN_LINES);
    const lines =
      shown.length === 0 ? ['It printed nothing.'] : ['Its last lines:', ...shown.map((line) => `  | ${line}`)];
    super([reason, ...lines].join('\n'), {
      where: failure.run,
      next: 'Run the same command again to continue from the last checkpoint; launch.max_restarts does so by itself.',
    });
    this.rank = failure.rank;
    this.workerExitCode = failure.exitCode;
    this.signal = failure.signal;
    this.lastLines = failure.lastLines;
    this.reason = reason;
  }
}

/** How a rank ended, as a person says it, with what is known about memory. `killsBefore`: see `memoryKills`. */
export function exitReason(
  exit: ChildExit,
  child: { readonly pid: number; readonly tail: readonly string[] },
  killsBefore: number | null,
): string {
  if (exit.signal !== null) {
    const memory =
      exit.signal === 'SIGKILL' && killedForMemory(child.pid, killsBefore) ? ': the system ran out of memory' : '';
    return `was ended by ${exit.signal}${memory || saidOutOfMemory(child.tail)}`;
  }
  const code = exit.code ?? 0;
  const inner = Object.entries(constants.signals).find(([, number]) => code === 128 + number)?.[0];
  if (inner === undefined) return `ended with exit code ${code}${saidOutOfMemory(child.tail)}`;
  const memory = inner === 'SIGKILL' && grew(killsBefore) ? ': the system ran out of memory' : '';
  return `ended with exit code ${code} (a process that it ran was ended by ${inner})${memory || saidOutOfMemory(child.tail)}`;
}

/** How many processes the kernel has killed for memory in this process's control group; null where that cannot be read. */
export function memoryKills(): number | null {
  for (const path of cgroupFiles()) {
    try {
      const count = /^oom_kill (\d+)$/m.exec(readFileSync(path, 'utf8'))?.[1];
      if (count !== undefined) return Number(count);
    } catch {
      continue; // The other version of control groups, or none at all.
    }
  }
  return null;
}

function cgroupFiles(): string[] {
  let own = '';
  try {
    own = /^0::(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1] ?? '';
  } catch {
    return []; // Not Linux.
  }
  return [
    `/sys/fs/cgroup${own}/memory.events`,
    '/sys/fs/cgroup/memory.events',
    '/sys/fs/cgroup/memory/memory.oom_control',
  ];
}

function grew(before: number | null): boolean {
  const now = memoryKills();
  return before !== null && now !== null && now > before;
}

function killedForMemory(pid: number, killsBefore: number | null): boolean {
  if (grew(killsBefore)) return true;
  const asked = spawnSync('dmesg', [], { encoding: 'utf8', timeout: DMESG_TIMEOUT_MS });
  return asked.status === 0 && new RegExp(`[Kk]illed process ${pid} `).test(asked.stdout);
}

function saidOutOfMemory(tail: readonly string[]): string {
  return tail.some((line) => /out of memory|MemoryError|bad_alloc/i.test(line)) ? ': it ran out of memory' : '';
}
