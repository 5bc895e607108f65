/** Where a sweep stands: what the live table and the summary line show, gathered from the schedule and the runs' files. */
import { RunError } from '../../core/errors.js';
import type { Placement } from '../devices.js';
import type { Phase, Schedule } from './schedule.js';
import type { RunningJob } from './sweep.js';
import { glimpse, pathsOf, type Glimpse } from './truth.js';

export interface RunningRow {
  readonly name: string;
  readonly iteration: number;
  readonly numIterations: number;
  /** The run waits for its judge. */
  readonly waiting: boolean;
  /** What it learns by, such as `reward 6.12`; empty before its first iteration. */
  readonly latest: string;
  /** Its last held-out number. */
  readonly heldOut: number | null;
  readonly elapsedS: number;
  /** Null while nothing can be said. */
  readonly leftS: number | null;
  /** `GPU 0,1` or `2 CPU threads`. */
  readonly where: string;
}

export interface Standing {
  readonly total: number;
  readonly counts: Readonly<Record<Phase, number>>;
  readonly running: readonly RunningRow[];
  readonly next: readonly string[];
  readonly elapsedS: number;
  readonly leftS: number | null;
}

const PHASES: readonly Phase[] = [
  'queued',
  'running',
  'elsewhere',
  'at_rung',
  'finished',
  'stopped',
  'failed',
  'blocked',
  'interrupted',
];

/** Watches a sweep; keeps what it needs to say how long the rest takes. */
export class Watch {
  readonly #startedMs = performance.now();
  /** The first progress seen of each run under way: what was done before this attempt tells nothing about its speed. */
  readonly #first = new Map<RunningJob, { readonly iteration: number; readonly ms: number }>();
  #doneSeconds = 0;
  #done = 0;

  constructor(
    private readonly schedule: Schedule,
    private readonly running: ReadonlyMap<string, RunningJob>,
    private readonly look: (job: RunningJob) => Glimpse | null = lookAt,
  ) {}

  /** Counts a run that finished, for the estimate of those to come. */
  finished(seconds: number): void {
    this.#done++;
    this.#doneSeconds += seconds;
  }

  now(): Standing {
    const running = [...this.running.values()].map((job) => this.#row(job));
    const counts = Object.fromEntries(PHASES.map((phase) => [phase, this.schedule.names(phase).length])) as Record<
      Phase,
      number
    >;
    const elapsedS = (performance.now() - this.#startedMs) / 1000;
    const total = PHASES.reduce((sum, phase) => sum + counts[phase], 0);
    return {
      total,
      counts,
      running,
      next: this.schedule.names('queued'),
      elapsedS,
      leftS: this.#left(running, counts),
    };
  }

  #row(job: RunningJob): RunningRow {
    const seen = this.look(job);
    const now = performance.now();
    const iteration = seen?.iteration ?? 0;
    const elapsedS = (now - job.startedMs) / 1000;
    return {
      name: job.job.name,
      iteration,
      numIterations: job.untilIteration,
      waiting: seen?.state === 'waiting',
      latest: latest(seen?.metrics ?? {}),
      heldOut: seen?.metrics['validation/sampled/mean'] ?? seen?.metrics['validation/greedy/mean'] ?? null,
      elapsedS,
      leftS: this.#runLeft(job, iteration, now),
      where: placeName(job.placement, job.job.processes),
    };
  }

  #runLeft(job: RunningJob, iteration: number, now: number): number | null {
    const first = this.#first.get(job);
    if (first === undefined || iteration < first.iteration) {
      this.#first.set(job, { iteration, ms: now });
      return null;
    }
    const done = iteration - first.iteration;
    if (done === 0) return null;
    return (((now - first.ms) / 1000) * (job.untilIteration - iteration)) / done;
  }

  /** The runs to come take as long as those before; where none is finished, as those under way. */
  #left(running: readonly RunningRow[], counts: Readonly<Record<Phase, number>>): number | null {
    const whole = running
      .map((row) => (row.leftS === null ? null : row.elapsedS + row.leftS))
      .filter((s) => s !== null);
    const mean =
      this.#done > 0
        ? this.#doneSeconds / this.#done
        : whole.length > 0
          ? whole.reduce((sum, seconds) => sum + seconds, 0) / whole.length
          : null;
    if (mean === null) return null;
    const underWay = running.reduce((sum, row) => sum + (row.leftS ?? Math.max(0, mean - row.elapsedS)), 0);
    return (underWay + mean * counts.queued) / Math.max(1, running.length);
  }
}

/** A run that cannot be read at this moment shows nothing; whatever is wrong with it, it says itself when it ends. */
function lookAt(job: RunningJob): Glimpse | null {
  try {
    return glimpse(pathsOf(job.job.config));
  } catch (error) {
    if (!(error instanceof RunError)) throw error;
    return null;
  }
}

const LATEST: readonly (readonly [metric: string, label: string, digits: number])[] = [
  ['reward/mean', 'reward', 2],
  ['policy/loss', 'loss', 3],
  ['loss', 'loss', 3],
];

function latest(metrics: Readonly<Record<string, number>>): string {
  const known = LATEST.find(([metric]) => metrics[metric] !== undefined);
  return known === undefined ? '' : `${known[1]} ${metrics[known[0]].toFixed(known[2])}`;
}

/** Where a run computes, in a few letters. */
export function placeName(placement: Placement, processes: number): string {
  if (placement.devices.length > 0) return `GPU ${placement.devices.join(',')}`;
  const threads =
    placement.threads === 0 ? 'all threads' : `${placement.threads} thread${placement.threads > 1 ? 's' : ''}`;
  return processes > 1 ? `CPU, ${processes} x ${threads}` : `CPU, ${threads}`;
}
