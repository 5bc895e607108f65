/** `state.json`: the state of a run. It is always replaced as a whole. */
import { RunError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { MEBIBYTE, readPlainText } from '../core/plain_file.js';
import type { RunPaths } from './paths.js';

export const RUN_STATES = ['queued', 'running', 'waiting', 'finished', 'failed', 'interrupted'] as const;
export type RunStateName = (typeof RUN_STATES)[number];

export interface RunState {
  readonly state: RunStateName;
  /** Finished iterations, 0 before the first. */
  readonly iteration: number;
  readonly num_iterations: number;
  /** The run's last heartbeat, ISO 8601 in UTC. */
  readonly heartbeat: string;
  /** Reason for waiting, failure, interruption or early stopping. Null if there is none. */
  readonly reason: string | null;
  /** Whether the run stopped early (a flat held-out loss). */
  readonly stopped_early: boolean;
  /** The best checkpoint so far. Absent without `checkpoint.keep_best` and before the first. */
  readonly best_checkpoint?: BestCheckpoint;
}

/** The best kept checkpoint. */
export interface BestCheckpoint {
  readonly iteration: number;
  /** The metric, as in `checkpoint.keep_best`. */
  readonly by: string;
  readonly value: number;
}

/** Reads `state.json`. Null if there is none yet. Raises RunError for an invalid state. */
export function readState(paths: RunPaths): RunState | null {
  const value = readJson(paths.state);
  if (value === null) return null;
  const state = value as Partial<RunState>;
  if (
    typeof value !== 'object' ||
    !RUN_STATES.some((name) => name === state.state) ||
    typeof state.iteration !== 'number'
  ) {
    throw new RunError(`invalid run state; allowed: ${RUN_STATES.join(', ')}`, {
      where: paths.state,
      next: 'Remove the file. The run then continues from its last complete checkpoint.',
    });
  }
  const best = state.best_checkpoint;
  const isBest = typeof best?.iteration === 'number' && typeof best.value === 'number' && typeof best.by === 'string';
  return {
    ...(isBest ? { best_checkpoint: best } : {}),
    state: state.state as RunStateName,
    iteration: state.iteration,
    num_iterations: state.num_iterations ?? state.iteration,
    heartbeat: state.heartbeat ?? '',
    reason: state.reason ?? null,
    stopped_early: state.stopped_early ?? false,
  };
}

/** Whether a run has finished this many iterations, or stopped early with at least as many configured. */
export function isDone(state: RunState | null, numIterations: number): boolean {
  if (state?.state !== 'finished') return false;
  return state.iteration >= numIterations || state.num_iterations >= numIterations;
}

/** Replaces `state.json` and sets the heartbeat to the current time. Raises RunError for a disk error. */
export function writeState(paths: RunPaths, state: Omit<RunState, 'heartbeat'>): RunState {
  const whole: RunState = { ...state, heartbeat: new Date().toISOString() };
  // A running run rewrites the state with every heartbeat, so only the final state has to survive a power failure.
  const sync = state.state !== 'running' && state.state !== 'queued';
  writeFileAtomic(paths.state, `${JSON.stringify(whole, null, 2)}\n`, { sync });
  return whole;
}

/** Maximum file size. The record of a run with hundreds of attempts has some hundred kilobytes. */
const MAX_JSON_BYTES = 16 * MEBIBYTE;

/** Parses a JSON file. Null if it does not exist. Raises RunError for an unreadable file. */
export function readJson(path: string): unknown {
  const text = readPlainText(path, MAX_JSON_BYTES);
  if (text === null) return null;
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw new RunError('invalid JSON', {
      where: path,
      next: 'Restore the file from a copy, or move the run directory away to start from scratch.',
      cause,
    });
  }
}
