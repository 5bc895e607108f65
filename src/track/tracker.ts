/** Receives a run's metrics besides the training process itself. The training loop knows only this interface. */
import { MetricsJournal, type Metrics } from '../run/metrics.js';
import type { RunPaths } from '../run/paths.js';

/** Receives what a run measures. */
export interface Tracker {
  /** The metrics of one finished iteration; iteration 0 is the state before training. */
  iteration(iteration: number, metrics: Metrics): Promise<void>;
  /** All metrics of an iteration for which only some were received before. */
  replace(iteration: number, metrics: Metrics): Promise<void>;
  /** Makes everything received durable; called with every checkpoint. */
  flush(): Promise<void>;
  /** Called when the run ends, for whatever reason. */
  finish(): Promise<void>;
}

/** Writes to the run directory; the source of truth of every report. */
export class RunDirectoryTracker implements Tracker {
  readonly #journal: MetricsJournal;
  readonly #rows = new CallTimer();
  readonly #syncs = new CallTimer();

  constructor(paths: RunPaths) {
    this.#journal = new MetricsJournal(paths);
  }

  async iteration(iteration: number, metrics: Metrics): Promise<void> {
    this.#rows.during(() => this.#journal.append(iteration, metrics));
  }

  async replace(iteration: number, metrics: Metrics): Promise<void> {
    this.#rows.during(() => this.#journal.replace(iteration, metrics));
  }

  async flush(): Promise<void> {
    this.#syncs.during(() => this.#journal.sync());
  }

  async finish(): Promise<void> {
    this.#journal.sync();
    this.#journal.close();
  }

  /** How long training had to wait for it. */
  heldTraining(): string {
    return `tracking held the training for ${this.#rows.mean} ms a row (longest ${this.#rows.longest} ms), ${this.#syncs.mean} ms a checkpoint`;
  }
}

/** Measures the time that calls of one kind take. */
class CallTimer {
  #ms = 0;
  #calls = 0;
  #longestMs = 0;

  during(work: () => void): void {
    const began = performance.now();
    work();
    const ms = performance.now() - began;
    this.#ms += ms;
    this.#calls++;
    this.#longestMs = Math.max(this.#longestMs, ms);
  }

  get mean(): string {
    return (this.#ms / Math.max(1, this.#calls)).toFixed(2);
  }

  get longest(): string {
    return this.#longestMs.toFixed(2);
  }
}

/** Discards everything: for ranks other than the first, and for tests. */
export const nullTracker: Tracker = {
  iteration: async () => {},
  replace: async () => {},
  flush: async () => {},
  finish: async () => {},
};

/** Passes everything to several trackers, in order. */
export function combineTrackers(trackers: readonly Tracker[]): Tracker {
  return {
    iteration: async (iteration, metrics) => {
      for (const tracker of trackers) await tracker.iteration(iteration, metrics);
    },
    replace: async (iteration, metrics) => {
      for (const tracker of trackers) await tracker.replace(iteration, metrics);
    },
    flush: async () => {
      for (const tracker of trackers) await tracker.flush();
    },
    finish: async () => {
      for (const tracker of trackers) await tracker.finish();
    },
  };
}
