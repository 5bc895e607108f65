/** The training loop for every kind of training: step, evaluate, record, save a checkpoint, and stop on request. */
import { EndpointError, InternalError, RunError } from '../core/errors.js';
import type { CheckpointSettings } from '../config/schema/training.js';
import type { CheckpointFiles } from '../models/files.js';
import type { ReleaseCheckpoint } from './policies/policy.js';
import type { Metrics } from '../run/metrics.js';
import type { Spending } from '../run/spending.js';
import type { ProgressColumn } from '../run/progress.js';
import { followerRecorder, RunRecorder, type Recorder, type LoopRecords } from './recorder.js';
import { WaitInterrupted } from '../core/group/rank_zero.js';
import { soloGroup, type ProcessGroup } from '../core/group/process_group.js';

/**
 * The part of the loop that depends on the kind of training. An iteration's effects depend only on the settings and its
 * number.
 */
export interface Training {
  /**
   * Continues from the checkpoint in this folder. Called at most once, before anything else. Raises CheckpointError
   * when a file is missing, does not fit the settings or is not finite.
   */
  restore(checkpoint: string): Promise<void>;
  /** Trains one iteration, counted from 1. */
  step(iteration: number): Promise<Metrics>;
  /**
   * Whether a step raised after it had changed the weights. Such weights belong to no iteration and are not saved.
   * Default: never.
   */
  readonly hasPartialStep?: boolean;
  /** Evaluates held-out prompts after `iteration` (0: before training). `last` means that no iteration follows. */
  evaluate(iteration: number, last: boolean): Promise<Metrics>;
  /** After an evaluation: why training should end now, or null. */
  shouldStop(): string | null;
  /** The files of a checkpoint. Raises CheckpointError when their content is not finite. */
  files(iteration: number): Promise<CheckpointFiles>;
  /** Deletes remote data of a removed checkpoint. See `Policy.release`. */
  release?(folder: string): ReleaseCheckpoint | null;
  /** Equal on all ranks that have the same weights. */
  checksum(): Promise<string>;
  dispose(): Promise<void>;
}

export interface LoopOptions {
  readonly numIterations: number;
  readonly evaluateEvery: number | null;
  readonly checkpoint: CheckpointSettings;
  /** Columns of the progress line. */
  readonly columns: readonly ProgressColumn[];
  /** Aborted when a person or the system asks the run to stop. */
  readonly stop: AbortSignal;
  /** Counts requests to the training server. Only on rank 0. */
  readonly spending?: Pick<Spending, 'save' | 'metrics'> | null;
}

export type LoopEnd = { readonly kind: 'finished'; readonly reason: string | null } | { readonly kind: 'interrupted' };

/**
 * Runs from the handle's iteration to the last.
 * A checkpoint is written before the state mentions it. If an iteration raises, everything written so far is kept. Rank
 * 0 decides, and every rank of the group follows. `records` is null on other ranks. Raises RunError when the loss stays
 * non-finite, see `DivergenceWatch`.
 */
export async function runLoop(
  training: Training,
  options: LoopOptions,
  records: LoopRecords | null,
  group: ProcessGroup = soloGroup(),
): Promise<LoopEnd> {
  const { numIterations, evaluateEvery } = options;
  const isEvaluated = (iteration: number): boolean =>
    iteration === 0 || iteration === numIterations || (evaluateEvery !== null && iteration % evaluateEvery === 0);
  const recorder: Recorder =
    records === null
      ? followerRecorder
      : new RunRecorder(records, training, options.checkpoint, options.columns, numIterations, isEvaluated);
  const { from, owed } = await group.broadcast({ from: recorder.from, owed: recorder.lacksEvaluation });
  const start = from ?? 0;
  if (start > options.numIterations) throw new InternalError(`iteration ${start} of ${options.numIterations}`);
  const shouldStop = (): Promise<string | null> => group.broadcast(training.shouldStop());
  const save = async (iteration: number): Promise<void> => {
    await requireAgreement(training, group, iteration);
    await recorder.save(iteration);
  };
  const finish = (iteration: number, reason: string | null): LoopEnd => {
    recorder.end({ state: 'finished', iteration, reason, stopped_early: iteration < options.numIterations });
    return { kind: 'finished', reason };
  };
  const interrupt = async (iteration: number): Promise<LoopEnd> => {
    if (training.hasPartialStep !== true) await recorder.save(iteration);
    recorder.end({ state: 'interrupted', iteration, reason: 'stopped on request' });
    return { kind: 'interrupted' };
  };
  const { spending = null } = options;
  const measured = async (iteration: number, metrics: Metrics): Promise<void> => {
    spending?.save();
    await recorder.recordMetrics(iteration, { ...metrics, ...spending?.metrics() });
  };

  const divergence = new DivergenceWatch();
  /** The last iteration with a complete step. */
  let reached = start;
  /** Metrics of that step until they are recorded together with its evaluation. */
  let unrecorded: Metrics | null = null;
  try {
    return await goRound();
  } catch (error) {
    if ((error instanceof WaitInterrupted || error instanceof EndpointError) && unrecorded !== null) {
      // Recorded without its evaluation, which the resumed run makes up for.
      await measured(reached, unrecorded);
      recorder.iterationDone(reached, unrecorded);
    }
    if (error instanceof WaitInterrupted) return await interrupt(reached);
    // If a server stays unreachable, this process ends, but nothing learned so far is lost.
    if (error instanceof EndpointError && training.hasPartialStep !== true) {
      await recorder.save(reached).catch((second: unknown) => {
        // The training server is unreachable, and so is the state to save. The last checkpoint remains.
        if (!(second instanceof EndpointError)) throw second;
      });
    }
    throw error;
  }

  async function goRound(): Promise<LoopEnd> {
    const atEnd = start === options.numIterations;
    if (from === null) {
      await measured(0, await training.evaluate(0, false));
      await save(0);
    } else {
      // A run that was interrupted between its last checkpoint and its end must not continue to train.
      if (owed) {
        // The judge was unreachable during the evaluation after this checkpoint.
        const metrics = { ...(await training.evaluate(start, atEnd)) };
        if (!atEnd && (await shouldStop()) !== null) Object.assign(metrics, await training.evaluate(start, true));
        await measured(start, metrics);
      }
      const reason = await shouldStop();
      if (reason !== null) return finish(start, reason);
    }
    if (atEnd) return finish(start, null);
    for (let iteration = start + 1; iteration <= options.numIterations; iteration++) {
      if (await group.broadcast(options.stop.aborted)) return interrupt(iteration - 1);
      const last = iteration === options.numIterations;
      unrecorded = await training.step(iteration);
      reached = iteration;
      const metrics = { ...unrecorded };
      const lost = await group.broadcast(divergence.note(iteration, metrics));
      if (lost !== null) {
        await measured(iteration, metrics);
        recorder.iterationDone(iteration, metrics);
        // Every rank has the same message, whichever rank's error is reported first.
        throw new RunError(lost, await group.broadcast(recorder.recoveryAdvice()));
      }
      let reason: string | null = null;
      if (isEvaluated(iteration)) {
        const evaluate = async (final: boolean): Promise<void> => {
          Object.assign(metrics, await training.evaluate(iteration, final));
        };
        await evaluate(last);
        reason = await shouldStop();
        if (reason !== null && !last) await evaluate(true);
      }
      await measured(iteration, metrics);
      unrecorded = null;
      recorder.iterationDone(iteration, metrics);
      const { save_every_n_iterations: every, keep_best } = options.checkpoint;
      const isBest =
        keep_best !== null && isEvaluated(iteration) && (await group.broadcast(recorder.isBest(iteration)));
      if (last || reason !== null || isBest || iteration % every === 0) await save(iteration);
      if (reason !== null) return finish(iteration, reason);
    }
    return finish(options.numIterations, null);
  }
}

/**
 * Raises an error if ranks disagree. Ranks that take the same steps must have the same weights, and a bug here would
 * silently spoil the run.
 */
async function requireAgreement(training: Training, group: ProcessGroup, iteration: number): Promise<void> {
  if (group.size === 1) return;
  const sums = await group.allGather(await training.checksum());
  if (new Set(sums).size > 1) {
    throw new InternalError(`iteration ${iteration}: ranks have different weights (${sums.join(', ')})`);
  }
}

/** The metric that optimizer steps minimize, for every kind of training. Absent if an iteration took no step. */
export const LOSS = 'policy/loss';

/** Number of non-finite losses in a row that ends a run. One or two can be due to a batch. */
export const NON_FINITE_LIMIT = 3;

/** Watches the loss over the iterations of one attempt. */
export class DivergenceWatch {
  #lost: number[] = [];

  /**
   * Adds an iteration's metrics. Returns why the run should end as failed, or null. An iteration without a loss, for
   * example because all groups had zero variance, neither counts nor interrupts a series.
   */
  note(iteration: number, metrics: Metrics): string | null {
    const loss = metrics[LOSS] as number | undefined;
    if (loss === undefined) return null;
    this.#lost = Number.isFinite(loss) ? [] : [...this.#lost, iteration];
    if (this.#lost.length < NON_FINITE_LIMIT) return null;
    return `the loss of iterations ${this.#lost.join(', ')} is not finite (${LOSS} is ${loss}): the run has diverged`;
  }
}
