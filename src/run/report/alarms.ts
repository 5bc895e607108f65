/** Hack alarms in a run's metrics: `alarm/<name>` is 1 in every iteration in which an alarm is active. */
import type { ReadSettings } from '../../schema/mark.js';
import type { Metrics, MetricsLine } from '../metrics.js';

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

/** Metrics as columns: element i of each column belongs to iteration i. Columns may be shorter than `iterations`. */
export interface MetricColumns {
  readonly names: readonly string[];
  readonly iterations: ArrayLike<number>;
  column(name: string): ArrayLike<number>;
}

/** Names of the alarms that are active in a line of metrics. */
export function activeAlarms(metrics: Readonly<Record<string, unknown>>): string[] {
  return Object.keys(metrics).flatMap((key) => (key.startsWith(PREFIX) ? [key.slice(PREFIX.length)] : []));
}

/** The crossings in the lines of trained iterations, in the order in which they were raised; those of one iteration by name. */
export function readAlarms(lines: readonly MetricsLine[]): AlarmSpan[] {
  const names = new Set(lines.flatMap(({ metrics }) => activeAlarms(metrics)));
  return alarmsIn({
    names: [...names].map((name) => PREFIX + name),
    iterations: lines.map(({ iteration }) => iteration),
    column: (metric) => lines.map(({ metrics }) => (metrics as Partial<Metrics>)[metric] ?? NaN),
  });
}

/** Like `readAlarms`, for columns, which may contain a line for iteration 0. */
export function alarmsIn(columns: MetricColumns): AlarmSpan[] {
  const { names, iterations } = columns;
  const spans = names
    .filter((name) => name.startsWith(PREFIX))
    .flatMap((alarm): AlarmSpan[] => {
      const name = alarm.slice(PREFIX.length);
      const metric = `hack/${name}`;
      const [active, values] = [columns.column(alarm), columns.column(metric)];
      const own: AlarmSpan[] = [];
      let open = false;
      for (let at = 0; at < active.length; at++) {
        const raised = active[at] === 1;
        const iteration = iterations[at];
        if (raised && open) own.push({ ...(own.pop() as AlarmSpan), to: iteration });
        else if (raised) {
          const value = Number.isFinite(values[at]) ? values[at] : null;
          own.push({ name, from: iteration, to: iteration, standing: false, metric, value });
        }
        open = raised;
      }
      const last = own.at(-1);
      return last === undefined || !open || active.length < iterations.length
        ? own
        : [...own.slice(0, -1), { ...last, standing: true }];
    });
  return spans.sort((a, b) => a.from - b.from || (a.name < b.name ? -1 : 1));
}

/** The limits of an alarm as the settings have them: `max_fall 0.4, max_rise 1`; null if the settings have none. */
export function alarmLimits(name: string, read: ReadSettings): string | null {
  const limits = ['max', 'max_fall', 'max_rise'].flatMap((side) => {
    const limit = read(`track.alarms.${name}.${side}`);
    return typeof limit === 'number' ? [`${side} ${limit}`] : [];
  });
  return limits.length === 0 ? null : limits.join(', ');
}
