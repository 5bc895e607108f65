/** Counts of processes that the kernel killed because memory ran out (Linux): by control group, and on the whole machine. */
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';

/** How long a kill counts as recent: a dead rank is examined once its group is gone and its output is read. */
const WINDOW_MS = 15_000;
/** A larger limit means none: version 1 of control groups writes a huge number for that. */
const NO_LIMIT_BYTES = 2 ** 60;

/** Number of kills by the file that reports them. */
type Counts = ReadonlyMap<string, number>;

/** Where the counters are; tests have their own. */
export interface KernelFiles {
  readonly proc: string;
  readonly cgroup: string;
}

/** A process that was killed for memory. */
export interface MemoryKill {
  /** The control group's memory limit, in bytes; null if there is none or it is unknown. */
  readonly limitBytes: number | null;
}

/**
 * Samples the counters at intervals, so that an old kill is not blamed for a new death. Knows the control groups of this process and of those it was
 * told about, however briefly they live.
 */
export class MemoryKills {
  readonly #known = new Set<string>();
  #samples: { readonly atMs: number; readonly counts: Counts }[] = [];

  constructor(private readonly files: KernelFiles = { proc: '/proc', cgroup: '/sys/fs/cgroup' }) {}

  /** Reads the counters. `pids`: processes whose kills should be noticed. */
  sample(pids: readonly number[], nowMs: number = performance.now()): void {
    for (const pid of ['self', ...pids.map(String)]) for (const file of this.#countersOf(pid)) this.#known.add(file);
    this.#samples.push({ atMs: nowMs, counts: this.#read() });
    while (this.#samples.length > 1 && nowMs - this.#samples[1].atMs > WINDOW_MS) this.#samples.shift();
  }

  /** A kill since the oldest sample that still counts; null if there was none, or nothing can be read. */
  recent(): MemoryKill | null {
    const now = this.#read();
    const before = (file: string): number | undefined =>
      this.#samples.find(({ counts }) => counts.has(file))?.counts.get(file);
    const grown = [...now].filter(([file, count]) => count > (before(file) ?? count)).map(([file]) => file);
    if (grown.length === 0) return null;
    const limits = grown.flatMap((file) => limitBeside(file) ?? []);
    return { limitBytes: limits.length === 0 ? null : Math.min(...limits) };
  }

  /** Uses the whole machine's count only if no group has one: on a machine with groups, its kills may be anybody's. */
  #read(): Counts {
    const groups = [...this.#known].flatMap(readCount);
    return new Map(groups.length > 0 ? groups : readCount(join(this.files.proc, 'vmstat')));
  }

  #countersOf(pid: string): string[] {
    const { proc, cgroup } = this.files;
    const groups = readText(join(proc, pid, 'cgroup')) ?? '';
    const unified = /^0::(.*)$/m.exec(groups)?.[1];
    const older = /^\d+:(?:[^:]*,)?memory(?:,[^:]*)?:(.*)$/m.exec(groups)?.[1];
    return [
      ...(unified === undefined ? [] : [join(cgroup, unified, 'memory.events')]),
      ...(older === undefined ? [] : [join(cgroup, 'memory', older, 'memory.oom_control')]),
      // In a container, the path in /proc may be the machine's, while the mount shows the container's own group.
      join(cgroup, 'memory.events'),
      join(cgroup, 'memory', 'memory.oom_control'),
    ];
  }
}

function readCount(file: string): [string, number][] {
  const count = /^oom_kill (\d+)$/m.exec(readText(file) ?? '')?.[1];
  return count === undefined ? [] : [[file, Number(count)]];
}

/** The limit of the control group that a counter belongs to. */
function limitBeside(file: string): number | null {
  for (const name of ['memory.max', 'memory.limit_in_bytes']) {
    const bytes = Number(readText(join(dirname(file), name)) ?? NaN);
    if (Number.isFinite(bytes) && bytes < NO_LIMIT_BYTES) return bytes;
  }
  return null;
}

/** Null if there is no such file: another version of control groups, another system, a process that has ended. */
function readText(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
