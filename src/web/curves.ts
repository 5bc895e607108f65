/** A run's learning curves: a few points that represent all lines, with the extremes of the lines that each represents. */
import { condense, finiteCurve } from '../core/curves.js';
import type { RunPaths } from '../run/paths.js';
import { alarmsIn } from '../run/report/alarms.js';
import { errorsOf } from './panels.js';
import { sampleLines, type Columns, type SeriesCache } from './series.js';
import type { WireCurve, WireCurves } from './wire.js';

/** How long an answer waits for a file that has not been read yet. */
const WAIT_MS = 120;
/** Number of sampled lines that represent a file while it is still being read. */
const SAMPLED_LINES = 1_000;

export interface CurvesRequest {
  readonly metrics: readonly string[];
  /** Maximum number of points of a curve. */
  readonly points: number;
  /** The wanted range of iterations, both ends included. */
  readonly from: number;
  readonly to: number;
}

/** Raises RunError when the metrics cannot be read. */
export async function curvesOf(cache: SeriesCache, paths: RunPaths, request: CurvesRequest): Promise<WireCurves> {
  const series = cache.get(paths.metrics);
  await series.read(WAIT_MS);
  const sampled = !series.whole;
  const columns = sampled ? sampleLines(paths.metrics, SAMPLED_LINES) : series.columns;
  const alarms = sampled
    ? []
    : alarmsIn(columns).map(({ metric, from, to }) => ({ metric, span: [from, to] as const }));
  return {
    metrics: columns.names,
    curves: request.metrics.map((metric) => curveOf(metric, columns, request)),
    alarms,
    lines: columns.lines,
    sampled,
    wrong_lines: columns.wrong,
  };
}

function curveOf(metric: string, columns: Columns, { points, from, to }: CurvesRequest): WireCurve {
  const errors = errorsOf(metric);
  const errorColumn = errors === null ? [] : columns.column(errors);
  return {
    metric,
    ...condense(finiteCurve(columns.iterations, columns.column(metric), errorColumn, [from, to]), points),
  };
}
