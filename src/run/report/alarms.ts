/** Hack alarms in a run's metrics: `alarm/<name>` is 1 in every iteration in which an alarm is active. */
import type { MetricsLine } from '../metrics.js';

const PREFIX = 'alarm/';

/** One crossing of a threshold: consecutive iterations in which the alarm is active. */
export interface AlarmSpan {
  readonly name: string;
  /** The iterations in which it was raised and in which it was last active. */
  readonly from: number;
  readonly to: number;
  /** Whether it is active in the last iteration. */
  readonly standing: boolean;
  /** The statistic that it watches, and its value in the iteration `from`; null if it was not measured there. */
  readonly metric: string;
  readonly value: number | null;
}

/** The crossings in the lines of trained iterations, in the order in which they were raised. */
export function readAlarms(lines: readonly MetricsLine[]): AlarmSpan[] {
  const spans: AlarmSpan[] = [];
  const open = new Map<string, number>();
  lines.forEach(({ iteration, metrics }, index) => {
    const standing = index === lines.length - 1;
    const names = Object.keys(metrics).flatMap((key) => (key.startsWith(PREFIX) ? [key.slice(PREFIX.length)] : []));
    for (const name of [...open.keys()].filter((one) => !names.includes(one))) open.delete(name);
    for (const name of names) {
      const at = open.get(name);
      if (at !== undefined) {
        spans[at] = { ...spans[at], to: iteration, standing };
        continue;
      }
      const metric = `hack/${name}`;
      open.set(name, spans.length);
      spans.push({ name, from: iteration, to: iteration, standing, metric, value: metrics[metric] ?? null });
    }
  });
  return spans;
}
