/** The line that a run prints per iteration, with fixed columns. */
import { speedOf, SPEEDS, type Metrics } from './metrics.js';

/** A column of the line that a run prints per iteration. */
export interface ProgressColumn {
  readonly label: string;
  readonly metric: string;
  readonly width: number;
  readonly digits: number;
  /** Shows the last known value in iterations that do not measure it. */
  readonly sticky: boolean;
}

const UNIT_WIDTH = Math.max(...SPEEDS.map((unit) => unit.length));

/** Formats the progress of one run and keeps state between iterations. */
export class Progress {
  readonly #last = new Map<string, number>();
  readonly #seconds: number[];

  /** `seconds` are the iteration times of an earlier process, latest last. */
  constructor(
    private readonly columns: readonly ProgressColumn[],
    private readonly numIterations: number,
    seconds: readonly number[] = [],
  ) {
    this.#seconds = [...seconds];
  }

  /** The line of a finished iteration. Reads `time/total` (seconds) and the speed in addition to the columns' own metrics. */
  line(iteration: number, metrics: Metrics): string {
    const width = String(this.numIterations).length;
    const parts = [`iteration ${String(iteration).padStart(width)}/${this.numIterations}`];
    for (const column of this.columns) {
      const value = metrics[column.metric] ?? (column.sticky ? this.#last.get(column.metric) : undefined);
      if (value !== undefined) this.#last.set(column.metric, value);
      parts.push(`${column.label} ${formatFixed(value, column.digits).padStart(column.width)}`);
    }
    const seconds = metrics['time/total'];
    const speed = speedOf(metrics);
    parts.push(`${formatCount(speed?.value).padStart(7)} ${(speed?.unit ?? '').padEnd(UNIT_WIDTH)}`);
    parts.push(`${formatSeconds(seconds).padStart(6)}/it`);
    parts.push(`${this.#timeLeft(iteration, seconds).padStart(7)} left`);
    return parts.join('  ');
  }

  #timeLeft(iteration: number, seconds: number | undefined): string {
    if (seconds !== undefined) this.#seconds.push(seconds);
    const left = secondsLeft(this.#seconds, this.numIterations - iteration);
    return left === null ? '-' : formatDuration(left);
  }
}

/** Seconds as `45 s`, `2m 05s`, `3h 07m` or `2d 04h`. */
export function formatDuration(seconds: number): string {
  if (!Number.isFinite(seconds)) return '-';
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${two(whole % 60)}s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h ${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86_400)}d ${two(Math.floor((whole % 86_400) / 3600))}h`;
}

function formatSeconds(seconds: number | undefined): string {
  if (seconds === undefined) return '-';
  return seconds < 100 ? `${seconds.toFixed(2)} s` : formatDuration(seconds);
}

function formatFixed(value: number | undefined, digits: number): string {
  if (value === undefined) return '-';
  return Number.isFinite(value) ? value.toFixed(digits) : String(value);
}

function formatCount(value: number | undefined): string {
  if (value === undefined || !Number.isFinite(value)) return '-';
  return Math.round(value).toLocaleString('en-US');
}

function two(value: number): string {
  return String(value).padStart(2, '0');
}

/** Number of latest iterations for the estimate. The median ignores the slow first iteration after a start. */
const TIMED = 9;
/** Minimum number of iterations for an estimate. */
const MIN_ITERATIONS = 3;

/**
 * Estimated seconds for `iterations` more, from the median of the latest `seconds` per iteration (oldest first). Null before three timed iterations.
 */
export function secondsLeft(seconds: readonly number[], iterations: number): number | null {
  const latest = seconds.filter(Number.isFinite).slice(-TIMED);
  if (latest.length < MIN_ITERATIONS) return null;
  const sorted = latest.sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] * Math.max(0, iterations);
}
