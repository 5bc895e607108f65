/** A run's learning curves: few points that stand for all lines, with the extremes of what each stands for. */
import { condense, finiteCurve } from '../core/curves.js';
import type { RunPaths } from '../run/paths.js';
import { errorsOf } from './panels.js';
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

function curveOf(metric: string, columns: Columns, { points, from, to }: CurvesRequest): WireCurve {
  const errors = errorsOf(metric);
  const errorColumn = errors === null ? [] : columns.column(errors);
  return {
    metric,
    ...condense(finiteCurve(columns.iterations, columns.column(metric), errorColumn, [from, to]), points),
  };
}
