/** Reward hacking alarms in a run's metrics: `alarm/<name>` is 1 while an alarm is active. */
import { alarmLimitsOf, alarmNames } from '../../config/schema/alarms.js';
import type { ReadSettings } from '../../core/schema/mark.js';
import type { Metrics, MetricsLine } from '../metrics.js';

const PREFIX = 'alarm/';

/** The metric that an alarm watches. */
export function watchedMetric(alarm: string): string {
  return alarm === 'kl' ? 'policy/kl' : `hack/${alarm}`;
}

/** A span of consecutive iterations in which an alarm is active. */
export interface AlarmSpan {
  readonly name: string;
  /** The first and last active iteration. */
  readonly from: number;
  readonly to: number;
  /** Whether it is active in the last iteration. */
  readonly active: boolean;
  /** The statistic that the alarm watches, and its value in iteration `from`. Null if it was not measured. */
  readonly metric: string;
  readonly value: number | null;
}

/** Metrics as columns: element i of each column is for `iterations[i]`. Columns may be shorter than `iterations`. */
export interface MetricColumns {
  readonly names: readonly string[];
  readonly iterations: ArrayLike<number>;
  column(name: string): ArrayLike<number>;
}

/** Names of the alarms that are active in a line of metrics. */
export function activeAlarms(metrics: Readonly<Record<string, unknown>>): string[] {
  return Object.keys(metrics).flatMap((key) => (key.startsWith(PREFIX) ? [key.slice(PREFIX.length)] : []));
}

/** The metrics of some lines as columns, with NaN for missing values. */
export function columnsOf(lines: readonly MetricsLine[]): MetricColumns {
  const names = new Set<string>();
  // Object.entries would take most of the time of reading a long run.
  for (const { metrics } of lines) for (const name in metrics) names.add(name);
  return {
    names: [...names],
    iterations: lines.map(({ iteration }) => iteration),
    column: (metric) => lines.map(({ metrics }) => (metrics as Partial<Metrics>)[metric] ?? NaN),
  };
}

/** All alarms in order of their first iteration, then by name. */
export function alarmsIn(columns: MetricColumns): AlarmSpan[] {
  const alarms = columns.names.filter((name) => name.startsWith(PREFIX));
  const spans = alarms.flatMap((alarm) => spansOf(alarm.slice(PREFIX.length), columns));
  return spans.sort((a, b) => a.from - b.from || (a.name < b.name ? -1 : 1));
}

function spansOf(name: string, columns: MetricColumns): AlarmSpan[] {
  const { iterations } = columns;
  const metric = watchedMetric(name);
  const [alarms, values] = [columns.column(PREFIX + name), columns.column(metric)];
  const last = iterations.length - 1;
  const spans: AlarmSpan[] = [];
  for (let at = 0; at < alarms.length; at++) {
    if (alarms[at] !== 1) continue;
    const to = iterations[at];
    const before = at > 0 && alarms[at - 1] === 1 ? spans.pop() : undefined;
    const value = Number.isFinite(values[at]) ? values[at] : null;
    spans.push({ ...(before ?? { name, from: to, metric, value }), to, active: at === last });
  }
  return spans;
}

/** The limits of an alarm, such as `max_fall 0.4, max_rise 1`. Null for an alarm without limits, such as the KL alarm. */
export function alarmLimits(name: string, read: ReadSettings): string | null {
  const known = alarmNames.find((one) => one === name);
  if (known === undefined) return null;
  const limits = Object.entries(alarmLimitsOf(known, read(`track.alarms.limits.${name}`)));
  return limits.flatMap(([side, limit]) => (limit === null ? [] : [`${side} ${limit}`])).join(', ');
}
