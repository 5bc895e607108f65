/** A run's learning curves: few points that stand for all lines, with the extremes of what each stands for. */
import type { RunPaths } from '../run/paths.js';
import { sampleLines, type Columns, type SeriesCache } from './series.js';
import type { WireCurve, WireCurves } from './wire.js';

/** How long an answer waits for a file that was not read before. */
const WAIT_MS = 120;
/** What stands for a file that is still being read. */
const SAMPLED_LINES = 1_000;

export interface CurvesRequest {
  readonly metrics: readonly string[];
  /** At most so many points of a curve. */
  readonly points: number;
  /** The iterations that are wanted, both included. */
  readonly from: number;
  readonly to: number;
}

/** Raises RunError where the metrics cannot be read. */
export async function curvesOf(cache: SeriesCache, paths: RunPaths, request: CurvesRequest): Promise<WireCurves> {
  const series = cache.get(paths.metrics);
  await series.read(WAIT_MS);
  const sampled = !series.whole;
  const columns = sampled ? sampleLines(paths.metrics, SAMPLED_LINES) : series.columns;
  return {
    metrics: columns.names,
    curves: request.metrics.map((metric) => curveOf(metric, columns, request)),
    lines: columns.lines,
    sampled,
    wrong_lines: columns.wrong,
  };
}

/** Numbers that are not finite have no point; the metric that counts them says how many there are. */
function curveOf(metric: string, columns: Columns, { points, from, to }: CurvesRequest): WireCurve {
  const { iterations } = columns;
  const values = columns.column(metric);
  const places: number[] = [];
  for (let place = 0; place < values.length; place++) {
    const iteration = iterations[place];
    if (iteration >= from && iteration <= to && Number.isFinite(values[place])) places.push(place);
  }
  if (places.length <= points) {
    return {
      metric,
      iterations: places.map((place) => iterations[place]),
      mean: places.map((place) => values[place]),
    };
  }
  const curve = { metric, iterations: [] as number[], mean: [] as number[], low: [] as number[], high: [] as number[] };
  for (let point = 0; point < points; point++) {
    const start = Math.floor((point * places.length) / points);
    const end = Math.floor(((point + 1) * places.length) / points);
    let [sum, low, high] = [0, Infinity, -Infinity];
    for (let at = start; at < end; at++) {
      const value = values[places[at]];
      sum += value;
      if (value < low) low = value;
      if (value > high) high = value;
    }
    curve.iterations.push(iterations[places[Math.floor((start + end - 1) / 2)]]);
    curve.mean.push(sum / (end - start));
    curve.low.push(low);
    curve.high.push(high);
  }
  return curve;
}
