/** `state.json`: what a run is doing, for people and for other processes. Always replaced as a whole. */
import { RunError } from '../core/errors.js';
import { writeFileAtomic } from '../core/files.js';
import { MEBIBYTE, readPlainText } from '../core/plain_file.js';
import type { RunPaths } from './paths.js';

export const RUN_STATES = ['queued', 'running', 'waiting', 'finished', 'failed', 'interrupted'] as const;
export type RunStateName = (typeof RUN_STATES)[number];

export interface RunState {
  readonly state: RunStateName;
  /** Finished iterations; 0 before the first. */
  readonly iteration: number;
  readonly num_iterations: number;
  /** The run's last heartbeat, ISO 8601 in UTC. */
  readonly heartbeat: string;
  /** Why it waits, failed, was interrupted or finished early; null if the state says it all. */
  readonly reason: string | null;
  /** Whether a run of this program's own trainer ended by its own rule before `num_iterations` (a flat held-out loss). */
  readonly stopped_early: boolean;
  /** The best of its checkpoints so far; absent where `checkpoint.keep_best` does not say by what, and before there is one. */
  readonly best_checkpoint?: BestCheckpoint;
}

/** A kept checkpoint that is better than the others. */
export interface BestCheckpoint {
  readonly iteration: number;
  /** What it is the best by, as in `checkpoint.keep_best`. */
  readonly by: string;
  readonly value: number;
}

/** Reads `state.json`; null when there is none yet. Raises RunError when it is not a state. */
export function readState(paths: RunPaths): RunState | null {
  const value = readJson(paths.state);
  if (value === null) return null;
  const state = value as Partial<RunState>;
  if (
    typeof value !== 'object' ||
    !RUN_STATES.some((name) => name === state.state) ||
    typeof state.iteration !== 'number'
  ) {
    throw new RunError(`not a run state; "state" is one of ${RUN_STATES.join(', ')}`, {
      where: paths.state,
      next: 'Remove the file: the run continues from its last whole checkpoint.',
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

/** Whether a run has done this many iterations, or ended by itself when it was to do at least as many. */
export function isDone(state: RunState | null, numIterations: number): boolean {
  if (state?.state !== 'finished') return false;
  return state.iteration >= numIterations || state.num_iterations >= numIterations;
}

/** Replaces `state.json`; the heartbeat is the time of writing. Raises RunError when the disk refuses. */
export function writeState(paths: RunPaths, state: Omit<RunState, 'heartbeat'>): RunState {
  const whole: RunState = { ...state, heartbeat: new Date().toISOString() };
  // While it runs, the state is rewritten with every iteration and heartbeat; only the final state has to survive a power failure.
  const sync = state.state !== 'running' && state.state !== 'queued';
  writeFileAtomic(paths.state, `${JSON.stringify(whole, null, 2)}\n`, { sync });
  return whole;
}

/** The record of a long run with hundreds of attempts has some hundred kilobytes. */
const MOST_JSON_BYTES = 16 * MEBIBYTE;

/** Parses a JSON file; null when it does not exist. Raises RunError on anything unreadable. */
export function readJson(path: string): unknown {
  const text = readPlainText(path, MOST_JSON_BYTES);
  if (text === null) return null;
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw new RunError('not whole JSON', {
      where: path,
      next: 'Restore the file from a copy, or move the run directory away to start the run again.',
      cause,
    });
  }
}
