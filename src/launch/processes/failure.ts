/** Describes a rank's death: what ended it, whether memory ran out, and its last lines. */
import { constants } from 'node:os';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { EditrlError, EngineError, InternalError, RunError, ServerEndedError } from '../../core/errors.js';
import type { ChildExit } from './child.js';

/** How many of the last lines are shown; `lastLines` has more. */
const SHOWN_LINES = 20;

export interface RunFailure {
  readonly run: string;
  readonly rank: number;
  readonly processes: number;
  /** Null if a signal ended it, or if it hung. */
  readonly exitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  /** What happened to the rank, without its name: `ended with exit code 3`. */
  readonly reason: string;
  /** What to do about it; null if all that is known is how to continue. */
  readonly advice: string | null;
  /** The last lines that it printed, oldest first. */
  readonly lastLines: readonly string[];
}

/** How a run goes on whose worker, or whose own training server, has ended. */
export const HOW_TO_CONTINUE =
  'Run the same command again to continue from the last checkpoint; launch.max_restarts does so by itself.';

/** A worker died, hung or ended with a code other than 0. */
export class RunFailed extends RunError {
  readonly rank: number;
  /** The worker's exit code; `exitCode` is this process's. */
  readonly workerExitCode: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly lastLines: readonly string[];
  /** One sentence, for `state.json` and tables. */
  readonly reason: string;
  /** What to do about its cause; null if unknown. */
  readonly advice: string | null;

  constructor(failure: RunFailure) {
    const who = failure.processes > 1 ? `rank ${failure.rank} of ${failure.processes}` : `rank ${failure.rank}`;
    const reason = `${who} ${failure.reason}`;
    const shown = failure.lastLines.slice(-SHOWN_LINES);
    const lines =
      shown.length === 0 ? ['It printed nothing.'] : ['Its last lines:', ...shown.map((line) => `  | ${line}`)];
    super([reason, ...lines].join('\n'), {
      where: failure.run,
      next: failure.advice === null ? HOW_TO_CONTINUE : `${failure.advice}\n  ${HOW_TO_CONTINUE}`,
    });
    this.rank = failure.rank;
    this.workerExitCode = failure.exitCode;
    this.signal = failure.signal;
    this.lastLines = failure.lastLines;
    this.reason = reason;
    this.advice = failure.advice;
  }
}

/** How a rank ended, and whether memory had to do with it. */
export interface EndReason {
  /** Without the rank's name: `ended with exit code 3`. */
  readonly reason: string;
  /** What to do about it, if more is known than that it ended. */
  readonly next: string | null;
}

/** Signals by which a person or a scheduler ends a process: they have nothing to do with what it printed before. */
const ASKED: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGINT', 'SIGHUP'];

/** How a rank ended, for people. `told`: what it printed about memory; `kill`: a recent kill by the kernel for lack of memory. */
export function exitReason(
  exit: ChildExit,
  { told, kill }: { readonly told: OutOfMemory | null; readonly kill: MemoryKill | null },
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
      : signal !== null && ASKED.includes(signal)
        ? null
        : told;
  return memory === null ? { reason, next: null } : { reason: `${reason}: ${memory.found}`, next: memory.next };
}

const RETRYABLE = [RunFailed, EngineError, InternalError, ServerEndedError] as const;

/** Whether a retry of the same attempt may succeed: a worker or the run's own server died or its engine failed, but its input is fine. */
export function isRetryable(error: unknown): boolean {
  if (RETRYABLE.some((kind) => error instanceof kind)) return true;
  return !(error instanceof EditrlError);
}

/** The message about a failed attempt. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The same in one sentence, for a run's state: without a worker's last lines. */
export function reasonOf(error: unknown): string {
  return error instanceof RunFailed ? error.reason : messageOf(error);
}

/** Which memory ran out. */
export type MemoryKind = 'heap' | 'gpu' | 'main';

export interface OutOfMemory {
  /** What was found, without naming the process. */
  readonly found: string;
  /** What to do, as one text. */
  readonly next: string;
}

/** Lines that report it, the specific ones first: the last row matches any other out-of-memory message. */
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

/** What a line of a log, or an error's message, says about memory; null if nothing. */
export function outOfMemoryIn(text: string): MemoryKind | null {
  return SIGNS.find(([, pattern]) => pattern.test(text))?.[0] ?? null;
}

/** Memory that ran out according to a program's output; `line` is quoted. */
export function reportedOutOfMemory(which: MemoryKind, line: string): OutOfMemory {
  return { found: `${FOUND[which]} (${shortened(line)})`, next: NEXT[which] };
}

/** A process that the kernel killed; `limitBytes` is its control group's limit, null if unknown. */
export function killedForMemory(limitBytes: number | null): OutOfMemory {
  const limit = limitBytes === null ? '' : `, limit ${Math.round(limitBytes / 2 ** 20)} MiB`;
  return { found: `the system ran out of memory (the kernel killed a process for it${limit})`, next: NEXT.main };
}

/** The advice for an error whose message says that memory ran out; null for another error. */
export function memoryAdvice(message: string): string | null {
  const which = outOfMemoryIn(message);
  return which === null ? null : NEXT[which];
}

const MAX_QUOTE = 160;

function shortened(line: string): string {
  const text = line.trim();
  return text.length > MAX_QUOTE ? `${text.slice(0, MAX_QUOTE)}…` : text;
}

/** A message about memory counts for this many further lines: trainers survive some of them and continue. */
const RECENT_LINES = 300;

/** Watches the lines of one process for messages about memory. */
export class MemoryMessages {
  #lines = 0;
  #last: { readonly at: number; readonly which: MemoryKind; readonly line: string } | null = null;

  add(line: string): void {
    this.#lines++;
    const which = outOfMemoryIn(line);
    // One failure prints many lines; the first specific one says most.
    if (which === null || (which === 'main' && this.#recent() !== null)) return;
    this.#last = { at: this.#lines, which, line };
  }

  /** What it has said recently; null if nothing. */
  latest(): OutOfMemory | null {
    const last = this.#recent();
    return last === null ? null : reportedOutOfMemory(last.which, last.line);
  }

  #recent(): { readonly which: MemoryKind; readonly line: string } | null {
    return this.#last !== null && this.#lines - this.#last.at <= RECENT_LINES ? this.#last : null;
  }
}

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
