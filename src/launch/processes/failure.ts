/** Describes a rank's death: what ended it, whether memory ran out, and its last lines. */
import { constants } from 'node:os';
import { EditrlError, EngineError, InternalError, RunError, ServerEndedError } from '../../core/errors.js';
import type { ChildExit } from './child.js';
import type { MemoryKill } from './memory_kills.js';
import { killedForMemory, type OutOfMemory } from './out_of_memory.js';

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
export const GO_ON =
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
      next: failure.advice === null ? GO_ON : `${failure.advice}\n  ${GO_ON}`,
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
