/** Writes the loop's records into the run directory. Only rank 0 does. */
import type { CheckpointSettings } from '../config/schema/training.js';
import type { CheckpointFiles } from '../models/files.js';
import { CheckpointError, RunError, type ErrorDetails } from '../core/errors.js';
import type { ReleaseCheckpoint } from './policies/policy.js';
import { bestMeasure, bestOf, evaluatedValues, valueOf, type BestMeasure } from '../run/chosen_checkpoint.js';
import { applyRetention, latestWhole, listCheckpoints, saveCheckpoint } from '../run/checkpoints.js';
import type { RunHandle } from '../run/claim/claim.js';
import { FILES_ONLY, type RunLog } from '../run/logs.js';
import { NON_FINITE, readMetrics, type Metrics, type MetricsJournal } from '../run/metrics.js';
import { checkpointsOfForks } from '../run/claim/pins.js';
import { Progress } from '../run/progress.js';
import type { ProgressColumn } from '../run/progress.js';
import type { BestCheckpoint, RunState } from '../run/state.js';

export interface LoopRecords {
  readonly handle: RunHandle;
  readonly log: RunLog;
  readonly journal: MetricsJournal;
}

/** The run's state when the loop ends. */
type EndState = Partial<Pick<RunState, 'state' | 'iteration' | 'reason' | 'stopped_early'>>;

export interface Recorder {
  /** The iteration from which the run continues. Null for a new run. */
  readonly from: number | null;
  /** Whether that iteration's evaluation is missing. It is then made first and added to the metrics of the step. */
  readonly lacksEvaluation: boolean;
  recordMetrics(iteration: number, metrics: Metrics): Promise<void>;
  /** Shows a finished iteration and writes it into the run's state. */
  iterationDone(iteration: number, metrics: Metrics): void;
  /**
   * Whether the recorded evaluation of this iteration is better than that of every checkpoint, according to
   * `checkpoint.keep_best`.
   */
  isBest(iteration: number): boolean;
  /**
   * Writes a checkpoint unless the iteration has one. Raises RunError when weights or optimizer state are not finite.
   */
  save(iteration: number): Promise<void>;
  /** Where a diverged run is, and from which checkpoint the user can continue. */
  recoveryAdvice(): ErrorDetails;
  end(change: EndState): void;
}

/** A recorder for ranks that write nothing. */
export const followerRecorder: Recorder = {
  from: null,
  lacksEvaluation: false,
  recordMetrics: async () => {},
  iterationDone: () => {},
  isBest: () => false,
  save: async () => {},
  recoveryAdvice: () => ({}),
  end: () => {},
};

export class RunRecorder implements Recorder {
  readonly from: number | null;
  readonly lacksEvaluation: boolean;
  /** Metrics that were already recorded for the iteration from which the run continues. */
  readonly #before: Metrics;
  readonly #progress: Progress;
  /** The measure of the best checkpoint and its values by iteration. Null if no best checkpoint is kept. */
  readonly #best: { readonly measure: BestMeasure; readonly values: Map<number, number> } | null;
  #saved: number;

  constructor(
    private readonly records: LoopRecords,
    private readonly training: {
      files(iteration: number): Promise<CheckpointFiles>;
      release?(folder: string): ReleaseCheckpoint | null;
    },
    private readonly checkpoint: CheckpointSettings,
    columns: readonly ProgressColumn[],
    numIterations: number,
    isEvaluated: (iteration: number) => boolean,
  ) {
    const { handle } = records;
    this.from = handle.checkpoint?.iteration ?? null;
    const recorded = readMetrics(handle.paths);
    const line = recorded.findLast(({ iteration }) => iteration === this.from);
    // Replacing the line computes the count of non-finite numbers again.
    const measured = Object.entries(line?.metrics ?? {}).filter(([name]) => name !== NON_FINITE);
    this.#before = Object.fromEntries(measured);
    const hasEvaluation = measured.some(([name]) => name.startsWith('validation/'));
    this.lacksEvaluation = this.from !== null && isEvaluated(this.from) && !hasEvaluation;
    this.#saved = this.from ?? -1;
    const measure = checkpoint.keep_best === null ? null : bestMeasure(checkpoint.keep_best);
    this.#best = measure === null ? null : { measure, values: evaluatedValues(measure, recorded) };
    this.#progress = new Progress(
      columns,
      numIterations,
      recorded.flatMap(({ metrics }) => metrics['time/total'] ?? []),
    );
  }

  async recordMetrics(iteration: number, metrics: Metrics): Promise<void> {
    this.records.handle.requireOwned();
    const { journal } = this.records;
    if (this.lacksEvaluation && iteration === this.from) {
      journal.replace(iteration, { ...this.#before, ...metrics });
    } else journal.append(iteration, metrics);
    const value = this.#best === null ? null : valueOf(this.#best.measure, metrics);
    if (value !== null) this.#best?.values.set(iteration, value);
  }

  isBest(iteration: number): boolean {
    if (this.#best === null) return false;
    const { measure, values } = this.#best;
    const there = listCheckpoints(this.records.handle.paths).filter((one) => one < iteration);
    return bestOf(measure, values, [...there, iteration])?.iteration === iteration;
  }

  iterationDone(iteration: number, metrics: Metrics): void {
    this.records.log.logger.info(this.#progress.line(iteration, metrics), FILES_ONLY);
    this.records.handle.setState({ iteration, ...this.#bestState() });
  }

  async save(iteration: number): Promise<void> {
    if (this.#saved === iteration) return;
    const { handle, journal } = this.records;
    // Another process may have taken the run over while this one was suspended. The folder then belongs to that
    // process.
    handle.requireOwned();
    // In this order, a kill in between repeats iterations instead of losing their lines.
    journal.sync();
    const files = await this.#files(iteration);
    // Fetching the files from another machine may have taken long.
    handle.requireOwned();
    saveCheckpoint(handle.paths, iteration, files);
    await this.#retain();
    this.#saved = iteration;
  }

  /** Removes checkpoints and their remote data. */
  async #retain(): Promise<void> {
    const { paths } = this.records.handle;
    const retention = {
      keep_every: this.checkpoint.keep_every_n_iterations ?? 0,
      keep_last: this.checkpoint.keep_last,
      best: this.#bestCheckpoint()?.iteration ?? null,
    };
    const releases: ReleaseCheckpoint[] = [];
    applyRetention(paths, retention, (folder) => {
      const release = this.training.release?.(folder) ?? null;
      if (release !== null) releases.push(release);
    });
    if (releases.length === 0) return;
    const own = listCheckpoints(paths).map((iteration) => paths.checkpoint(iteration));
    const others = [...own, ...checkpointsOfForks(paths)];
    for (const release of releases) await release(others);
  }

  #bestCheckpoint(): BestCheckpoint | null {
    if (this.#best === null) return null;
    const { measure, values } = this.#best;
    return bestOf(measure, values, listCheckpoints(this.records.handle.paths));
  }

  #bestState(): Pick<RunState, 'best_checkpoint'> {
    const best = this.#bestCheckpoint();
    return best === null ? {} : { best_checkpoint: best };
  }

  recoveryAdvice(): ErrorDetails {
    const { paths } = this.records.handle;
    const last = latestWhole(paths);
    const learning = 'for example with a smaller optimizer.learning_rate';
    const next =
      last === null
        ? `No checkpoint has finite weights. Start over with \`editrl run CONFIG --fresh\`, ${learning}.`
        : `The last checkpoint with finite weights is at iteration ${last.iteration} (${last.dir}). Continue from it ${learning}: \`editrl fork ${paths.runName}@${last.iteration} --as NEW_NAME --set KEY=VALUE\`.`;
    return { where: paths.dir, next };
  }

  async #files(iteration: number): Promise<CheckpointFiles> {
    try {
      return await this.training.files(iteration);
    } catch (error) {
      if (!(error instanceof CheckpointError)) throw error;
      throw new RunError(`iteration ${iteration} is not saved: ${error.message}`, {
        ...this.recoveryAdvice(),
        cause: error,
      });
    }
  }

  end(change: EndState): void {
    this.records.handle.setState({ ...change, ...this.#bestState() });
  }
}
