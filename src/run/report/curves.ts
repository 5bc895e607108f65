/** Curves of metrics: what charts and sparklines draw. Pure; nothing is read from a disk. */
import { must } from '../../core/errors.js';
import { spreadOf, type Spread } from '../../core/statistics.js';
import type { MetricsLine } from '../metrics.js';

/** A value at an iteration; `y` may be not finite, which breaks a line. */
export interface CurvePoint {
  readonly x: number;
  readonly y: number;
}

/** What several curves come to at an iteration: their mean, and the least and greatest of them. */
export interface SpreadPoint extends Spread {
  readonly x: number;
  readonly low: number;
  readonly high: number;
}

/** Every metric's name, sorted. */
export function metricNames(lines: readonly MetricsLine[]): string[] {
  const names = new Set<string>();
  for (const { metrics } of lines) for (const name in metrics) names.add(name);
  return [...names].sort();
}

/** One metric over the iterations that measured it. */
export function curveOf(lines: readonly MetricsLine[], metric: string): CurvePoint[] {
  return lines.flatMap(({ iteration: x, metrics }) => {
    const y = metrics[metric] as number | undefined;
    return y === undefined ? [] : [{ x, y }];
  });
}

/**
 * Several curves as one: at each iteration that any of them has, over those that have a finite value there. Iterations at which none has
 * one are left out.
 */
export function spreadCurve(curves: readonly (readonly CurvePoint[])[]): SpreadPoint[] {
  const byX = new Map<number, number[]>();
  for (const { x, y } of curves.flat()) {
    if (!Number.isFinite(y)) continue;
    const values = byX.get(x);
    if (values === undefined) byX.set(x, [y]);
    else values.push(y);
  }
  return [...byX]
    .sort(([a], [b]) => a - b)
    .map(([x, values]) => ({
      x,
      ...must(spreadOf(values), 'the spread of some values'),
      low: values.reduce((a, b) => Math.min(a, b)),
      high: values.reduce((a, b) => Math.max(a, b)),
    }));
}

/**
 * At most `most` points of a curve (two at least), in which peaks survive: of each of so many equal stretches of points the least and the
 * greatest are kept, in their order, and so are both ends. A stretch that holds a value that is not finite keeps the first such, so that a
 * gap stays one.
 */
export function downsample(points: readonly CurvePoint[], most: number): CurvePoint[] {
  if (points.length <= Math.max(2, most)) return [...points];
  const stretches = Math.max(0, Math.floor((most - 2) / 2));
  const inner = points.length - 2;
  const kept = new Set([0, points.length - 1]);
  for (let i = 0; i < stretches; i++) {
    const from = 1 + Math.floor((i * inner) / stretches);
    const to = 1 + Math.floor(((i + 1) * inner) / stretches);
    let [least, greatest, gap] = [-1, -1, -1];
    for (let at = from; at < to; at++) {
      const { y } = points[at];
      if (!Number.isFinite(y)) {
        if (gap < 0) gap = at;
        continue;
      }
      if (least < 0 || y < points[least].y) least = at;
      if (greatest < 0 || y > points[greatest].y) greatest = at;
    }
    const chosen = gap >= 0 ? [gap, greatest] : [least, greatest];
    for (const at of chosen) if (at >= 0) kept.add(at);
  }
  return [...kept].sort((a, b) => a - b).map((at) => points[at]);
}

const BARS = [...'▁▂▃▄▅▆▇█'];

/**
 * A curve in one line of text, `width` characters at most: each the mean of a stretch of values, from the least of them to the greatest.
 * Values that are not finite are passed over; empty where there is none.
 */
export function sparkline(values: readonly number[], width: number): string {
  const finite = values.filter(Number.isFinite);
  const count = Math.min(width, finite.length);
  const means = Array.from({ length: count }, (_, i) => {
    const [from, to] = [i, i + 1].map((at) => Math.floor((at * finite.length) / count));
    return finite.slice(from, to).reduce((sum, value) => sum + value, 0) / (to - from);
  });
  const low = means.reduce((a, b) => Math.min(a, b), Infinity);
  const high = means.reduce((a, b) => Math.max(a, b), -Infinity);
  const level = (value: number): number =>
    high > low ? Math.min(BARS.length - 1, Math.floor(((value - low) / (high - low)) * BARS.length)) : 3;
  return means.map((value) => BARS[level(value)]).join('');
}
