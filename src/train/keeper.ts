/** What the loop leaves behind in the run directory: rank 0 keeps it, the others keep nothing. */
import type { CheckpointSettings } from '../config/settings.js';
import { applyRetention, saveCheckpoint } from '../run/checkpoints.js';
import type { RunHandle } from '../run/claim.js';
import type { RunLog } from '../run/logs.js';
import { readMetrics, type Metrics } from '../run/metrics.js';
import { Progress, type ProgressKind } from '../run/progress.js';
import type { RunState } from '../run/state.js';
import type { Tracker } from '../track/tracker.js';

export interface LoopRecords {
  readonly handle: RunHandle;
  readonly log: RunLog;
  readonly tracker: Tracker;
}

/** What the run's state says when the loop ends. */
type EndState = Partial<Pick<RunState, 'state' | 'iteration' | 'reason' | 'stopped_early'>>;

export interface Keeper {
  /** The iteration that the run goes on from; null for one that begins. */
  readonly from: number | null;
  /** Whether the evaluation of that iteration is still to be made. */
  readonly owed: boolean;
  measured(iteration: number, metrics: Metrics): Promise<void>;
  /** The iteration is done: shown, and written into the run's state. */
  passed(iteration: number, metrics: Metrics): void;
  /** Writes a checkpoint where the iteration has none. */
  save(iteration: number): Promise<void>;
  end(change: EndState): void;
}

/** For the ranks that write nothing. */
export const followerKeeper: Keeper = {
  from: null,
  owed: false,
  measured: async () => {},
  passed: () => {},
  save: async () => {},
  end: () => {},
};

export class RunKeeper implements Keeper {
  readonly from: number | null;
  readonly owed: boolean;
  readonly #progress: Progress;
  #saved: number;

  constructor(
    private readonly records: LoopRecords,
    private readonly training: {
      readonly kind: ProgressKind;
      files(iteration: number): Record<string, Uint8Array | string>;
    },
    private readonly checkpoint: CheckpointSettings,
    numIterations: number,
  ) {
    const { handle } = records;
    this.from = handle.checkpoint?.iteration ?? null;
    this.owed = this.from !== null && !readMetrics(handle.paths).some(({ iteration }) => iteration === this.from);
    this.#saved = this.from ?? -1;
    this.#progress = new Progress(training.kind, numIterations);
  }

  async measured(iteration: number, metrics: Metrics): Promise<void> {
    await this.records.tracker.iteration(iteration, metrics);
  }

  passed(iteration: number, metrics: Metrics): void {
    this.records.log.logger.info(this.#progress.line(iteration, metrics));
    this.records.handle.setState({ iteration });
  }

  async save(iteration: number): Promise<void> {
    if (this.#saved === iteration) return;
    const { handle, tracker } = this.records;
    // In this order: a kill in between then repeats iterations instead of losing their lines.
    await tracker.flush();
    saveCheckpoint(handle.paths, iteration, this.training.files(iteration));
    applyRetention(handle.paths, {
      keep_every: this.checkpoint.keep_every_n_iterations ?? 0,
      keep_last: this.checkpoint.keep_last,
    });
    this.#saved = iteration;
  }

  end(change: EndState): void {
    this.records.handle.setState(change);
  }
}
