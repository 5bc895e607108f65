/**
 * Samples and scores the next iteration's answers during training, with the weights from the start of the current
 * iteration.
 */
import type { Policy } from './policies/policy.js';
import { Stopwatch } from './grpo_metrics.js';

export interface AheadOptions<Drawn, Made> {
  /** The last iteration that is sampled ahead. Absent if none is. */
  readonly until?: number;
  readonly policy: Pick<Policy<never, never, never>, 'steps'>;
  readonly draw: (iteration: number) => Promise<Drawn>;
  /**
   * Collects an iteration's answers. It publishes the current weights before it first waits, so they are the ones that
   * sample.
   */
  readonly collect: (iteration: number, drawn: Drawn, watch: Stopwatch) => Promise<Made>;
}

interface Taken<Drawn, Made> {
  readonly drawn: Drawn;
  readonly made: Made;
  /** Number of optimizer steps since the answers were sampled. Null if they were not sampled ahead. */
  readonly behind: number | null;
}

export class SampledAhead<Drawn, Made> {
  #next: {
    readonly iteration: number;
    readonly drawn: Drawn;
    readonly made: Promise<Made>;
    readonly steps: number;
  } | null = null;

  constructor(private readonly options: AheadOptions<Drawn, Made>) {}

  /**
   * Returns the iteration's answers and begins the next iteration's. An error in the latter is raised by the step that
   * needs them.
   */
  async take(iteration: number, watch: Stopwatch): Promise<Taken<Drawn, Made>> {
    const next = this.#next;
    this.#next = null;
    const taken =
      next?.iteration === iteration
        ? {
            drawn: next.drawn,
            made: await watch.time('rollout', () => next.made),
            behind: this.options.policy.steps - next.steps,
          }
        : await this.#now(iteration, watch);
    await this.#begin(iteration + 1);
    return taken;
  }

  /** Resolves once sampling has ended. */
  async settled(): Promise<void> {
    await this.#next?.made.catch(() => undefined);
  }

  async #now(iteration: number, watch: Stopwatch): Promise<Taken<Drawn, Made>> {
    const drawn = await this.options.draw(iteration);
    return { drawn, made: await this.options.collect(iteration, drawn, watch), behind: null };
  }

  async #begin(iteration: number): Promise<void> {
    const { until, policy, draw, collect } = this.options;
    if (until === undefined || iteration > until) return;
    const drawn = await draw(iteration);
    const { steps } = policy;
    const made = collect(iteration, drawn, new Stopwatch());
    made.catch(() => undefined);
    this.#next = { iteration, drawn, made, steps };
  }
}
