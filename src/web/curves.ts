/** Learning curves: a few points that represent all lines, with the extremes of the lines that each represents. */
import { condense, finiteCurve, type Curve } from '../core/curves.js';
import type { RunPaths } from '../run/paths.js';
import { alarmsIn } from '../run/report/alarms.js';
import { errorMetricOf, SERIES_COLOURS } from './panels.js';
import { alarmMarks, groupCurve } from './report/curves.js';
import { sampleLines, type Columns, type MetricsSeries, type SeriesCache } from './series.js';
import type { WireCurves } from './wire.js';

/** How long an answer waits for a file that has not been read yet. */
const WAIT_MS = 40;
/** Number of sampled lines that represent the files of an answer that are still being read. */
const SAMPLED_LINES = 1_000;
/** The least number of these for each file. */
const LEAST_SAMPLED = 100;

export interface CurvesRequest {
  readonly metrics: readonly string[];
  /** Maximum number of points of a curve. */
  readonly points: number;
  /** The wanted range of iterations, both ends included. */
  readonly from: number;
  readonly to: number;
}

/** Runs that share a colour: a single run, or the seeds of a cell. */
export interface CurveGroup {
  readonly label: string;
  readonly runs: readonly RunPaths[];
}

/** The curves of one run. Raises RunError when the metrics cannot be read. */
export async function curvesOf(cache: SeriesCache, paths: RunPaths, request: CurvesRequest): Promise<WireCurves> {
  const [read] = await readColumns(cache, [paths]);
  const { columns, sampled } = read;
  return {
    ...summaryOf([read]),
    curves: request.metrics.map((metric) => ({
      metric,
      ...condense(rawCurve(metric, columns, request), request.points),
    })),
    alarms: sampled ? [] : alarmMarks(alarmsIn(columns)),
  };
}

/** The curves of several runs or cells, each with its colour. Raises RunError when the metrics cannot be read. */
export async function groupCurvesOf(
  cache: SeriesCache,
  all: readonly CurveGroup[],
  request: CurvesRequest,
): Promise<WireCurves> {
  const groups = all.slice(0, SERIES_COLOURS);
  const read = await readColumns(
    cache,
    groups.flatMap(({ runs }) => runs),
  );
  let taken = 0;
  const columns = groups.map(({ runs }) => read.slice(taken, (taken += runs.length)).map((one) => one.columns));
  return {
    ...summaryOf(read),
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

interface ReadColumns {
  readonly columns: Columns;
  readonly sampled: boolean;
}

/**
 * Waits for all files together no longer than for one, and reads them one after another: many that are read at once would keep the answer waiting. The rest
 * is read behind it.
 */
async function readColumns(cache: SeriesCache, all: readonly RunPaths[]): Promise<ReadColumns[]> {
  const series = all.map((paths) => ({ paths, one: cache.get(paths.metrics) }));
  const until = performance.now() + WAIT_MS;
  for (const [at, { one }] of series.entries()) {
    const left = until - performance.now();
    if (left <= 0) {
      readOn(series.slice(at).map((rest) => rest.one));
      break;
    }
    await one.read(left);
  }
  const unread = series.filter(({ one }) => !one.whole).length;
  const lines = Math.max(LEAST_SAMPLED, Math.ceil(SAMPLED_LINES / unread));
  return series.map(({ paths, one }) => {
    const sampled = !one.whole;
    return { sampled, columns: sampled ? sampleLines(paths.metrics, lines) : one.columns };
  });
}

/** Reads files one after another. What cannot be read is raised where it is asked for. */
function readOn([first, ...rest]: readonly MetricsSeries[]): void {
  first?.readWhole().then(
    () => readOn(rest),
    () => readOn(rest),
  );
}

function summaryOf(read: readonly ReadColumns[]): Pick<WireCurves, 'metrics' | 'lines' | 'sampled' | 'wrong_lines'> {
  return {
    metrics: [...new Set(read.flatMap(({ columns }) => columns.names))].sort(),
    lines: read.reduce((sum, { columns }) => sum + columns.lines, 0),
    sampled: read.some(({ sampled }) => sampled),
    wrong_lines: read.reduce((sum, { columns }) => sum + columns.wrong, 0),
  };
}

function rawCurve(metric: string, columns: Columns, { from, to }: Pick<CurvesRequest, 'from' | 'to'>): Curve {
  const errors = errorMetricOf(metric);
  return finiteCurve(columns.iterations, columns.column(metric), errors === null ? [] : columns.column(errors), [
    from,
    to,
  ]);
}
