/** Learning curves, reduced to a limited number of points with the minimum and maximum of the iterations that share a point. */
import { condense, finiteCurve, smooth, type Curve } from '../core/curves.js';
import { must } from '../core/errors.js';
import { average, spreadOf } from '../core/statistics.js';
import type { MetricsLine } from '../run/metrics.js';
import type { RunPaths } from '../run/paths.js';
import { alarmsIn, columnsOf, type MetricColumns } from '../run/report/alarms.js';
import { errorMetricOf, isSmoothed, panelsOf, SERIES_COLORS } from './panels.js';
import type { Columns, SeriesCache } from './series.js';
import type { WireCurve, WireCurves } from './wire.js';

export interface CurvesRequest {
  readonly metrics: readonly string[];
  /** Maximum number of points of a curve. */
  readonly points: number;
  /** Range of iterations, including both ends. */
  readonly from: number;
  readonly to: number;
}

/** Runs that share a color: a single run, or the seeds of a cell. */
export interface CurveGroup {
  readonly label: string;
  readonly runs: readonly RunPaths[];
}

/** The curves of one run. Raises RunError for unreadable metrics. */
export async function curvesOf(cache: SeriesCache, paths: RunPaths, request: CurvesRequest): Promise<WireCurves> {
  const read = await readColumns(cache, [paths]);
  const [columns] = read;
  const curves = request.metrics.map((metric) => runCurve(columns, metric, request));
  return { ...summaryOf(read), curves, alarms: alarmMarks(columns) };
}

/** The curves of several runs or cells, each in one color. Raises RunError for unreadable metrics. */
export async function groupCurvesOf(
  cache: SeriesCache,
  all: readonly CurveGroup[],
  request: CurvesRequest,
): Promise<WireCurves> {
  const groups = all.slice(0, SERIES_COLORS);
  const runs = groups.flatMap((group) => group.runs);
  const read = await readColumns(cache, runs);
  const columns = groups.map((group) => group.runs.map((paths) => read[runs.indexOf(paths)]));
  return { ...summaryOf(read), ...groupCurves(all, columns, request) };
}

/** The curves of groups of runs. Groups beyond the number of colors are only counted. */
function groupCurves(
  all: readonly { readonly label: string; readonly runs: readonly unknown[] }[],
  columns: readonly (readonly MetricColumns[])[],
  request: CurvesRequest,
): Pick<WireCurves, 'curves' | 'groups' | 'more_groups' | 'over_seeds'> {
  const groups = all.slice(0, SERIES_COLORS);
  return {
    curves: request.metrics.flatMap((metric) =>
      groups.map(({ label }, at) => {
        const curves = columns[at].map((one) => rawCurve(metric, one, request));
        return { metric, group: label, ...groupCurve(curves, metric, request.points) };
      }),
    ),
    groups: groups.map(({ label }) => label),
    more_groups: all.length - groups.length,
    over_seeds: groups.some(({ runs }) => runs.length > 1),
  };
}

function runCurve(columns: MetricColumns, metric: string, request: CurvesRequest): WireCurve {
  return { metric, ...condense(rawCurve(metric, columns, request), request.points) };
}

/** Reads files one after another, because parallel reads would delay each other. */
async function readColumns(cache: SeriesCache, all: readonly RunPaths[]): Promise<Columns[]> {
  const read: Columns[] = [];
  for (const { metrics } of all) {
    const series = cache.get(metrics);
    await series.readWhole();
    read.push(series.columns);
  }
  return read;
}

function summaryOf(read: readonly Columns[]): Pick<WireCurves, 'metrics' | 'lines' | 'wrong_lines'> {
  return {
    metrics: [...new Set(read.flatMap(({ names }) => names))].sort(),
    lines: read.reduce((sum, { lines }) => sum + lines, 0),
    wrong_lines: read.reduce((sum, { wrong }) => sum + wrong, 0),
  };
}

function rawCurve(metric: string, columns: MetricColumns, { from, to }: Pick<CurvesRequest, 'from' | 'to'>): Curve {
  const errors = errorMetricOf(metric);
  return finiteCurve(columns.iterations, columns.column(metric), errors === null ? [] : columns.column(errors), [
    from,
    to,
  ]);
}

/** Runs that share a color: a single run, or the seeds of a cell. */
export interface Group {
  readonly label: string;
  /** The metrics of each run, oldest first. */
  readonly runs: readonly (readonly MetricsLine[])[];
}

/** Points per curve. A chart cannot show more, and the file would grow. */
const MAX_POINTS = 300;
/** Significant digits, as many as a chart can show. */
const DIGITS = 6;

/** The curves of every metric that has a chart, and of `leading`. */
export function reportCurves(all: readonly Group[], leading: string | null): WireCurves {
  const groups = all.slice(0, SERIES_COLORS);
  const columns = groups.map(({ runs }) => runs.map(columnsOf));
  const known = [...new Set(columns.flat().flatMap(({ names }) => names))].sort();
  const shown = panelsOf(known).flatMap(({ metrics }) => metrics);
  const metrics = known.filter((metric) => metric === leading || shown.includes(metric));
  const request = { metrics, points: MAX_POINTS, from: 0, to: Infinity };
  const lines = groups.flatMap(({ runs }) => runs.flat()).length;
  const common = { metrics, lines, wrong_lines: 0 };
  if (columns.length !== 1 || columns[0].length !== 1) return { ...common, ...groupCurves(all, columns, request) };
  const [[only]] = columns;
  const curves = metrics.map((metric) => ({ metric, ...rounded(runCurve(only, metric, request)) }));
  return { ...common, curves, alarms: alarmMarks(only) };
}

/** The alarms that charts mark. */
function alarmMarks(columns: MetricColumns): NonNullable<WireCurves['alarms']> {
  return alarmsIn(columns).map(({ metric, from, to }) => ({ metric, span: [from, to] }));
}

/**
 * The smoothed curve of one run in a comparison, or of the seeds of a cell. Several raw curves in one chart would hide each other. The points of a run
 * are reduced before smoothing, so long runs cost less and there is no band. Runs without points are left out.
 */
export function groupCurve(curves: readonly Curve[], metric: string, points: number): Curve & Pick<WireCurve, 'last'> {
  const found = curves.filter(({ mean }) => mean.length > 0);
  if (found.length === 0) return { iterations: [], mean: [] };
  const last = digits(average(found.flatMap(({ mean }) => mean.slice(-1))));
  const curve =
    found.length === 1 ? smoothed(metric, condense(found[0], points)) : condense(meanWithSpread(found, metric), points);
  return { ...rounded(curve), last };
}

/** Smooths curves of seeds before averaging, so that the band shows the spread of the smoothed curves. */
function smoothed(metric: string, curve: Curve): Curve {
  return isSmoothed(metric, curve.mean.length) ? { iterations: curve.iterations, mean: smooth(curve.mean) } : curve;
}

/** Averages several curves at each iteration that any of them has, with a band of one standard deviation. */
export function meanWithSpread(curves: readonly Curve[], metric: string): Curve {
  const byIteration = new Map<number, number[]>();
  for (const { iterations, mean } of curves.map((curve) => smoothed(metric, curve))) {
    iterations.forEach((iteration, at) => {
      const values = byIteration.get(iteration);
      if (values === undefined) byIteration.set(iteration, [mean[at]]);
      else values.push(mean[at]);
    });
  }
  const points = [...byIteration].sort(([a], [b]) => a - b);
  const spreads = points.map(([, values]) => must(spreadOf(values), 'the spread of some values'));
  return finiteCurve(
    points.map(([iteration]) => iteration),
    spreads.map(({ mean }) => mean),
    spreads.map(({ std }) => std ?? 0),
  );
}

function digits(value: number): number {
  return Number(value.toPrecision(DIGITS));
}

/** Rounds a curve to the digits that a chart can show. */
function rounded(curve: Curve): Curve {
  const all = (values: readonly number[]): number[] => values.map(digits);
  const { iterations, mean, low, high } = curve;
  return {
    iterations,
    mean: all(mean),
    ...(low === undefined || high === undefined ? {} : { low: all(low), high: all(high) }),
  };
}
