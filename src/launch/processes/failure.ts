/** Describes how a rank died: the cause, whether memory ran out, and its last lines. */
import { constants } from 'node:os';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { EditrlError, EngineError, InternalError, RunError, ServerEndedError } from '../../core/errors.js';
import type { ChildExit } from './child.js';

/** Number of last lines in the message. `lastLines` has more. */
const SHOWN_LINES = 20;

export interface RunFailure {
  readonly run: string;
  readonly rank: number;
  readonly processes: number;
  /** Null if a signal ended the rank or if it hung. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** What happened to the rank, without its name: `ended with exit code 3`. */
  readonly reason: string;
  /** What to do about the cause. Null if only the way to continue is known. */
  readonly advice: string | null;
  /** The last lines of its output, oldest first. */
  readonly lastLines: readonly string[];
}

/** How to continue a run after its worker or its own training server has ended. */
export const HOW_TO_CONTINUE =
  'Run the same command again to continue from the last checkpoint; launch.max_restarts does so by itself.';

/** A worker died, hung or ended with a code other than 0. */
export class RunFailed extends RunError {
  /** One sentence for `state.json` and tables. */
  readonly reason: string;

  constructor(readonly failure: RunFailure) {
    const who = failure.processes > 1 ? `rank ${failure.rank} of ${failure.processes}` : `rank ${failure.rank}`;
    const reason = `${who} ${failure.reason}`;
    const shown = failure.lastLines.slice(-SHOWN_LINES);
    const lines =
      shown.length === 0 ? ['It printed nothing.'] : ['Its last lines:', ...shown.map((line) => `  | ${line}`)];
    super([reason, ...lines].join('\n'), {
      where: failure.run,
      next: failure.advice === null ? HOW_TO_CONTINUE : `${failure.advice}\n  ${HOW_TO_CONTINUE}`,
    });
    this.reason = reason;
  }
}

/** How a rank ended, and whether memory was the cause. */
export interface EndReason {
  /** Without the rank's name: `ended with exit code 3`. */
  readonly reason: string;
  /** What to do. Null if only the fact that it ended is known. */
  readonly next: string | null;
}

/** Signals by which a person or a scheduler ends a process. Its last lines do not explain such an end. */
const EXTERNAL_SIGNALS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGINT', 'SIGHUP'];

/**
 * Describes how a rank ended. `printed` is what it printed about memory, and `kill` a recent kill by the kernel for lack
 * of memory.
 */
export function exitReason(
  exit: ChildExit,
  { printed, kill }: { readonly printed: OutOfMemory | null; readonly kill: MemoryKill | null },
): EndReason {
  const code = exit.code ?? 0;
  const inner = (Object.entries(constants.signals) as [NodeJS.Signals, number][]).find(
    ([, number]) => code === 128 + number,
  )?.[0];
  const signal = exit.signal ?? inner ?? null;
  const reason =
    exit.signal !== null
      ? `was ended by ${exit.signal}`
      : `ended with exit code ${code}${inner === undefined ? '' : ` (a process that it ran was ended by ${inner})`}`;
  const memory =
    signal === 'SIGKILL' && kill !== null
      ? killedForMemory(kill.limitBytes)
      : signal !== null && EXTERNAL_SIGNALS.includes(signal)
        ? null
        : printed;
  return memory === null ? { reason, next: null } : { reason: `${reason}: ${memory.found}`, next: memory.next };
}

const RETRYABLE = [RunFailed, EngineError, InternalError, ServerEndedError] as const;

/**
 * Whether the same attempt may succeed on a retry: a worker or the run's own server died, or its engine failed. Bad
 * input is not retried.
 */
export function isRetryable(error: unknown): boolean {
  if (RETRYABLE.some((kind) => error instanceof kind)) return true;
  return !(error instanceof EditrlError);
}

/** The message about a failed attempt. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Like `messageOf`, but one sentence without a worker's last lines. It goes into a run's state. */
export function reasonOf(error: unknown): string {
  return error instanceof RunFailed ? error.reason : messageOf(error);
}

/** The kind of memory that ran out. */
export type MemoryKind = 'heap' | 'gpu' | 'main';

export interface OutOfMemory {
  /** The observation, without the name of the process. */
  readonly found: string;
  /** What to do. */
  readonly next: string;
}

/** Patterns of out-of-memory messages, specific ones first. The last row matches any other out-of-memory message. */
const SIGNS: readonly (readonly [MemoryKind, RegExp])[] = [
  ['heap', /heap out of memory|ERR_WORKER_OUT_OF_MEMORY/],
  [
    'gpu',
    /(CUDA|HIP|XPU)[^:]*(: | )out of memory|CU(BLAS|DNN|SPARSE|SOLVER)_STATUS_ALLOC_FAILED|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|OUT_OF_DEVICE_MEMORY/i,
  ],
  [
    'main',
    /out of memory|OutOfMemoryError|\bMemoryError\b|memory exhausted|std::bad_alloc|\bbad allocation\b|Failed to allocate memory|Available memory of \d+ is smaller than requested|DefaultCPUAllocator: (not enough|can't allocate) memory|Cannot allocate memory|\bENOMEM\b|Array buffer allocation failed/i,
  ],
];

const FOUND: Readonly<Record<MemoryKind, string>> = {
  heap: "the heap of Node's V8 was full",
  gpu: "the GPU's memory was full",
  main: 'it ran out of memory',
};

const SMALLER =
  'Make its micro-batches smaller (optimizer.per_device_batch_size, or what your own trainer calls it), switch on optimizer.gradient_checkpointing, or lower policy.model_context_size';
const NEXT: Readonly<Record<MemoryKind, string>> = {
  heap: "Give it a larger heap, as launch.env: {NODE_OPTIONS: '--max-old-space-size=8192'} (MiB), or less to hold at once.",
  gpu: `${SMALLER}; nvidia-smi shows what else is on that GPU.`,
  main: `${SMALLER}; or let fewer processes share the memory (launch.processes, --max-parallel of a sweep), or ask for more (launch.slurm.mem).`,
};

/**
 * The kind of memory that ran out according to a log line or an error's message. Null if it is about something else.
 */
export function outOfMemoryIn(text: string): MemoryKind | null {
  return SIGNS.find(([, pattern]) => pattern.test(text))?.[0] ?? null;
}

/** Describes an out-of-memory message in a program's output and quotes the line. */
export function reportedOutOfMemory(which: MemoryKind, line: string): OutOfMemory {
  return { found: `${FOUND[which]} (${shortened(line)})`, next: NEXT[which] };
}

/** Describes a process that the kernel killed. `limitBytes` is the limit of its control group, or null if unknown. */
export function killedForMemory(limitBytes: number | null): OutOfMemory {
  const limit = limitBytes === null ? '' : `, limit ${Math.round(limitBytes / 2 ** 20)} MiB`;
  return { found: `the system ran out of memory (the kernel killed a process for it${limit})`, next: NEXT.main };
}

/** Advice for an error whose message reports that memory ran out. Null for other errors. */
export function memoryAdvice(message: string): string | null {
  const which = outOfMemoryIn(message);
  return which === null ? null : NEXT[which];
}

const MAX_QUOTE = 160;

function shortened(line: string): string {
  const text = line.trim();
  return text.length > MAX_QUOTE ? `${text.slice(0, MAX_QUOTE)}…` : text;
}

/** A message about memory counts for this many further lines, because trainers survive some of them and continue. */
const RECENT_LINES = 300;

/** Watches the lines of one process for messages about memory. */
export class MemoryMessages {
  #lines = 0;
  #last: { readonly at: number; readonly which: MemoryKind; readonly line: string } | null = null;

  add(line: string): void {
    this.#lines++;
    const which = outOfMemoryIn(line);
    // One failure prints many lines. The first specific one is the most useful.
    if (which === null || (which === 'main' && this.#recent() !== null)) return;
    this.#last = { at: this.#lines, which, line };
  }

  /** The recent message about memory. Null if there is none. */
  latest(): OutOfMemory | null {
    const last = this.#recent();
    return last === null ? null : reportedOutOfMemory(last.which, last.line);
  }

  #recent(): { readonly which: MemoryKind; readonly line: string } | null {
    return this.#last !== null && this.#lines - this.#last.at <= RECENT_LINES ? this.#last : null;
  }
}

/**
 * Milliseconds for which a kill counts as recent. A dead rank is examined only after its group is gone and its output
 * is read.
 */
const WINDOW_MS = 15_000;
/** A limit above this means no limit: version 1 of control groups writes a huge number then. */
const NO_LIMIT_BYTES = 2 ** 60;

/** Number of kills, by the file that counts them. */
type Counts = ReadonlyMap<string, number>;

/** Roots of the kernel's counter files. Tests use folders of their own. */
export interface KernelFiles {
  readonly proc: string;
  readonly cgroup: string;
}

/** A process that the kernel killed for lack of memory. */
export interface MemoryKill {
  /** Memory limit of the control group in bytes. Null if there is none or it is unknown. */
  readonly limitBytes: number | null;
}

/**
 * Samples the kernel's kill counters at intervals, so that an old kill is not blamed for a new death. Remembers the
 * control groups of this process and of all sampled processes, including short-lived ones.
 */
export class MemoryKills {
  readonly #known = new Set<string>();
  #samples: { readonly atMs: number; readonly counts: Counts }[] = [];

  constructor(private readonly files: KernelFiles = { proc: '/proc', cgroup: '/sys/fs/cgroup' }) {}

  /** Reads the counters. `pids` are the processes whose control groups to watch, too. */
  sample(pids: readonly number[], nowMs: number = performance.now()): void {
    for (const pid of ['self', ...pids.map(String)]) for (const file of this.#countersOf(pid)) this.#known.add(file);
    this.#samples.push({ atMs: nowMs, counts: this.#read() });
    while (this.#samples.length > 1 && nowMs - this.#samples[1].atMs > WINDOW_MS) this.#samples.shift();
  }

  /** A kill within the last `WINDOW_MS`. Null if there was none, or if no counter can be read. */
  recent(): MemoryKill | null {
    const now = this.#read();
    const before = (file: string): number | undefined =>
      this.#samples.find(({ counts }) => counts.has(file))?.counts.get(file);
    const grown = [...now].filter(([file, count]) => count > (before(file) ?? count)).map(([file]) => file);
    if (grown.length === 0) return null;
    const limits = grown.flatMap((file) => limitBeside(file) ?? []);
    return { limitBytes: limits.length === 0 ? null : Math.min(...limits) };
  }

  /**
   * Uses the machine-wide count only if no control group has one. With groups, a machine-wide kill may be of any
   * process.
   */
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
      // In a container, /proc may name the machine's path while the mount shows the container's own group.
      join(cgroup, 'memory.events'),
      join(cgroup, 'memory', 'memory.oom_control'),
    ];
  }
}

function readCount(file: string): [string, number][] {
  const count = /^oom_kill (\d+)$/m.exec(readText(file) ?? '')?.[1];
  return count === undefined ? [] : [[file, Number(count)]];
}

/** The limit of the control group that a counter file belongs to. */
function limitBeside(file: string): number | null {
  for (const name of ['memory.max', 'memory.limit_in_bytes']) {
    const bytes = Number(readText(join(dirname(file), name)) ?? NaN);
    if (Number.isFinite(bytes) && bytes < NO_LIMIT_BYTES) return bytes;
  }
  return null;
}

/**
 * Returns null if the file does not exist: another version of control groups, another system, or a process that has
 * ended.
 */
function readText(file: string): string | null {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    return null;
  }
}
