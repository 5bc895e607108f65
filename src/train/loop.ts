/** Once round the loop for every kind of training: step, evaluate, record, checkpoint; stop when asked to. */
import { EndpointError, InternalError } from '../core/errors.js';
import type { CheckpointSettings } from '../config/settings.js';
import { applyRetention, saveCheckpoint } from '../run/checkpoints.js';
import type { RunHandle } from '../run/claim.js';
import type { RunLog } from '../run/logs.js';
import { readMetrics, type Metrics } from '../run/metrics.js';
import { Progress, type ProgressKind } from '../run/progress.js';
import type { Tracker } from '../track/tracker.js';

/** What a kind of training does in its turn. An iteration's effects depend on the settings and its number alone. */
export interface Training {
  readonly kind: ProgressKind;
  /** One iteration, counted from 1. */
  step(iteration: number): Promise<Metrics>;
  /** Held-out evaluation after `iteration` (0: before training); `last` when nothing follows. */
  evaluate(iteration: number, last: boolean): Promise<Metrics>;
  /** After an evaluation: why training should end now, or null. */
  shouldStop(): string | null;
  /** The files of a checkpoint. */
  files(iteration: number): Record<string, Uint8Array | string>;
  dispose(): Promise<void>;
}

export interface LoopOptions {
  readonly numIterations: number;
  readonly evaluateEvery: number | null;
  readonly checkpoint: CheckpointSettings;
  /** Set when a person or the system asks the run to stop. */
  readonly stop: AbortSignal;
}

export type LoopEnd = { readonly kind: 'finished'; readonly reason: string | null } | { readonly kind: 'interrupted' };

export interface LoopRecords {
  readonly handle: RunHandle;
  readonly log: RunLog;
  readonly tracker: Tracker;
}

/** Raised by a step or an evaluation that cannot come to its end because the run was asked to stop while it waited. */
export class Abandoned extends Error {}

/**
 * Runs from the handle's iteration to the last. A checkpoint is written before the state says so; whatever was written is
 * kept when an iteration raises.
 */
export async function runLoop(training: Training, options: LoopOptions, records: LoopRecords): Promise<LoopEnd> {
  const { handle, log, tracker } = records;
  const progress = new Progress(training.kind, options.numIterations);
  const start = handle.checkpoint?.iteration ?? 0;
  let saved = handle.checkpoint?.iteration ?? -1;
  const save = async (iteration: number): Promise<void> => {
    if (saved === iteration) return;
    // In this order: a kill in between then repeats iterations instead of losing their lines.
    await tracker.flush();
    saveCheckpoint(handle.paths, iteration, training.files(iteration));
    applyRetention(handle.paths, {
      keep_every: options.checkpoint.keep_every_n_iterations ?? 0,
      keep_last: options.checkpoint.keep_last,
    });
    saved = iteration;
  };
  const finish = (iteration: number, reason: string | null): LoopEnd => {
    handle.setState({ state: 'finished', iteration, reason, stopped_early: iteration < options.numIterations });
    return { kind: 'finished', reason };
  };

  const interrupt = async (iteration: number): Promise<LoopEnd> => {
    await save(iteration);
    handle.setState({ state: 'interrupted', iteration, reason: 'stopped on request' });
    return { kind: 'interrupted' };
  };

  if (start > options.numIterations) throw new InternalError(`iteration ${start} of ${options.numIterations}`);
  /** The iteration whose update the weights have; a step that raises has changed none. */
  let reached = start;
  try {
    return await goRound();
  } catch (error) {
    if (error instanceof Abandoned) return await interrupt(reached);
    // A judge that stays away ends the process, but nothing learned so far is lost.
    if (error instanceof EndpointError) await save(reached);
    throw error;
  }

  async function goRound(): Promise<LoopEnd> {
    const atEnd = start === options.numIterations;
    if (handle.checkpoint === null) {
      await tracker.iteration(0, await training.evaluate(0, false));
      await save(0);
    } else {
      // A run that was cut off between its last checkpoint and its end must not train on.
      const owed = !readMetrics(handle.paths).some(({ iteration }) => iteration === start);
      if (owed) {
        // The judge was away during the evaluation that follows this checkpoint.
        const metrics = { ...(await training.evaluate(start, atEnd)) };
        if (!atEnd && training.shouldStop() !== null) Object.assign(metrics, await training.evaluate(start, true));
        await tracker.iteration(start, metrics);
      }
      const reason = training.shouldStop();
      if (reason !== null) return finish(start, reason);
    }
    if (atEnd) return finish(start, null);
    for (let iteration = start + 1; iteration <= options.numIterations; iteration++) {
      if (options.stop.aborted) return interrupt(iteration - 1);
      const last = iteration === options.numIterations;
      const metrics = { ...(await training.step(iteration)) };
      reached = iteration;
      const due = last || (options.evaluateEvery !== null && iteration % options.evaluateEvery === 0);
      let reason: string | null = null;
      if (due) {
        const evaluate = async (final: boolean): Promise<void> => {
          Object.assign(metrics, await training.evaluate(iteration, final));
        };
        await evaluate(last);
        reason = training.shouldStop();
        if (reason !== null && !last) await evaluate(true);
      }
      await tracker.iteration(iteration, metrics);
      log.logger.info(progress.line(iteration, metrics));
      handle.setState({ iteration });
      if (last || reason !== null || iteration % options.checkpoint.save_every_n_iterations === 0) {
        await save(iteration);
      }
      if (reason !== null) return finish(iteration, reason);
    }
    return finish(options.numIterations, null);
  }
}
