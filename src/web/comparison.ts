/** Runs side by side on the dashboard: their curves, what their settings differ in, and their paired differences. */
import { existsSync } from 'node:fs';
import { badRequest, Refusal } from '../core/http/refusal.js';
import type { Reply } from '../core/http/body.js';
import {
  compareRead,
  comparisonRows,
  formatComparison,
  letterOf,
  type ComparedRun,
  type Comparison,
} from '../run/report/compare.js';
import { showHeldOut, showScale, signedEstimate } from '../run/report/numbers.js';
import { readMetrics } from '../run/metrics.js';
import { readRun } from '../run/report/read.js';
import { formatReport } from '../run/report/text.js';
import { reportCurves, type CurveGroup } from './curves.js';
import { GUARD_HEADERS } from './page_files.js';
import { SERIES_COLORS } from './panels.js';
import { reportDocument } from './report/document.js';
import * as parts from './report/parts.js';
import { NONE, paragraph, table } from './report/parts.js';
import { runReport } from './report/run.js';
import { wireRun } from './run_list.js';
import type { IndexedRun, RunsIndex } from './runs_index.js';
import type { WireBlock, WireComparison, WireFact, WireReport } from './wire.js';

/** The runs that a query names, and the names of those that are not there, as after they were removed. */
export interface ChosenRuns {
  readonly runs: readonly IndexedRun[];
  readonly missing: readonly string[];
}

/** Raises Refusal: 400 for more runs than can be told apart, 404 if none of them is there. */
export function chosenRuns(index: RunsIndex, query: URLSearchParams): ChosenRuns {
  const ids = [...new Set(query.getAll('run'))];
  if (ids.length > SERIES_COLORS) {
    throw badRequest(`${ids.length} runs were chosen; allowed: at most ${SERIES_COLORS} side by side.`, 'run');
  }
  const found = ids.map((id) => index.get(id));
  const runs = found.flatMap((run) => run ?? []);
  const missing = ids.filter((_, at) => found[at] === null).map((id) => id.slice(0, 120));
  if (runs.length > 0) return { runs, missing };
  throw new Refusal('not_found', `There is no run '${missing.join("', '")}' here.`);
}

/** One group of curves for each run; letters tell runs of the same name in different folders apart. */
export function groupsOf({ runs }: ChosenRuns): CurveGroup[] {
  return runs.map(({ paths }, at) => ({ label: letteredName(paths.runName, at), runs: [paths] }));
}

/** The runs with their metrics, a run at a time. Raises RunError when the records of a run cannot be read. */
async function readChosen({ runs }: ChosenRuns): Promise<ComparedRun[]> {
  const read: ComparedRun[] = [];
  for (const { paths } of runs) {
    const lines = readMetrics(paths);
    read.push({ paths, report: readRun(paths, lines), lines });
    // Other requests are answered between two runs.
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  return read;
}

/**
 * The report of the runs as one file to download: of a single run, or of runs side by side. Raises Refusal 404 if one of them is not there: a file
 * does not say later what it lacks. Raises RunError when the records of a run cannot be read, or the page was not built.
 */
export async function reportFileOf(chosen: ChosenRuns): Promise<Reply> {
  const { missing } = chosen;
  if (missing.length > 0) throw new Refusal('not_found', `There is no run '${missing.join("', '")}' here any more.`);
  const read = await readChosen(chosen);
  const [first] = read;
  const body = read.length === 1 ? await runFile(first) : await comparisonFile(compareRead(read));
  const headers = { ...GUARD_HEADERS, 'cache-control': 'no-store', 'content-disposition': 'attachment' };
  return { status: 200, type: 'text/html; charset=utf-8', body, headers };
}

/** Raises RunError when the records of a run cannot be read. */
export async function comparisonOf(chosen: ChosenRuns): Promise<WireComparison> {
  const { runs, missing } = chosen;
  const read = await readChosen(chosen);
  const { about, facts, notice, results, settings, times, alarms } = comparisonParts(compareRead(read));
  const gone = missing.map((id) => `There is no run '${id}' here any more; it is left out.`);
  return {
    runs: runs.map((run) => wireRun(run)),
    with_contact_sheet: runs.filter(({ paths }) => existsSync(paths.contactSheet)).map(({ id }) => id),
    about,
    facts,
    notice: gone.length === 0 ? notice : { title: 'Mind', texts: [...gone, ...(notice?.texts ?? [])] },
    above_curves: [
      { title: 'What their settings differ in', blocks: settings },
      { title: 'Results', blocks: [results] },
    ],
    sections: [
      { title: 'Time', blocks: [times] },
      { title: 'Hack alarms', blocks: alarms },
    ],
  };
}

/** What a comparison says in words and tables. */
export type ComparisonParts = Pick<WireReport, 'about' | 'facts' | 'notice' | 'leading'> & {
  readonly results: WireBlock;
  readonly settings: readonly WireBlock[];
  readonly times: WireBlock;
  readonly alarms: readonly WireBlock[];
};

export function comparisonParts(comparison: Comparison): ComparisonParts {
  const { runs, remarks } = comparison;
  const rows = comparisonRows(comparison).map(({ label, values }) => [label, ...values]);
  return {
    about:
      'Held-out before and after. Paired differences are taken prompt by prompt at each run’s last evaluation; their standard errors are over prompts, and say nothing of other seeds.',
    facts: facts(comparison),
    notice: parts.notice('Mind', remarks),
    leading: runs.find(({ report }) => report.heldout.metric !== null)?.report.heldout.metric ?? null,
    results: table('Results', { titles: ['', ...runs.map((_, at) => letterOf(at))], rows }),
    settings: settings(comparison),
    times: parts.times(
      runs.map(({ report }, at) => ({
        label: letteredName(report.run_name, at),
        seconds: report.seconds_per_iteration,
      })),
    ),
    alarms: parts.alarms(runs.map(({ report }) => ({ run: report.run_name, alarms: report.alarms }))),
  };
}

export async function comparisonReport(comparison: Comparison): Promise<WireReport> {
  const { runs } = comparison;
  const { results, settings: differences, times, alarms, leading, ...head } = comparisonParts(comparison);
  const pictures = new parts.Pictures();
  const sheets: WireBlock[] = [];
  for (const [at, { report, paths }] of runs.entries()) {
    sheets.push(...(await pictures.sheets(letteredName(report.run_name, at), paths)));
  }
  return {
    ...head,
    heading: `${runs.length} runs side by side`,
    run: null,
    leading,
    scale: scaleOf(runs),
    changes: null,
    curves: reportCurves(
      runs.map(({ report, lines }, at) => ({ label: letteredName(report.run_name, at), runs: [lines] })),
      leading,
    ),
    sections: [
      { title: 'Results', blocks: [results] },
      { title: 'What their settings differ in', blocks: differences },
      { title: 'Curves', blocks: [{ kind: 'curves' }] },
      { title: 'Time', blocks: [times] },
      { title: 'Hack alarms', blocks: alarms },
      { title: 'Contact sheets', blocks: sheets },
    ],
    pictures: pictures.addresses,
  };
}

/** A run's name behind its letter, which tells it from a run of the same name in another folder. */
export function letteredName(name: string, at: number): string {
  return `${letterOf(at)}: ${name}`;
}

function scaleOf(runs: Comparison['runs']): string | null {
  const scales = new Set(
    runs.map(({ report: { heldout } }) => (heldout.scale === null ? null : showScale(heldout.scale))),
  );
  const [scale = null] = scales;
  return scales.size === 1 ? scale : null;
}

function facts({ runs, paired }: Comparison): WireFact[] {
  return runs.map(({ report }, at) => {
    const { before, after } = report.heldout;
    const found = paired.find((one) => one.at === at);
    const more =
      found === undefined
        ? at === 0
          ? 'the others are compared with it'
          : 'no prompt that both were evaluated on, by the same reward or measure'
        : `${signedEstimate(found)} against ${letterOf(0)}${found.by === null ? '' : `, ${found.by}`}, paired over ${found.n} prompts, ${found.manner}`;
    const shown = (mean: number | null): string => (mean === null ? NONE : showHeldOut({ mean, stderr: null }));
    const value = `${shown(before)} → ${shown(after)}`;
    return { name: letteredName(report.run_name, at), value, more };
  });
}

function settings({ settings: all, runs }: Comparison): WireBlock[] {
  if (all === null) return [paragraph('They cannot be compared: see above.')];
  if (all.length === 0) return [paragraph('In none.')];
  const of = (effect: 'result' | 'operation'): ReturnType<typeof parts.differences> =>
    parts.differences(
      runs.map((_, at) => letterOf(at)),
      all.filter((one) => one.effect === effect).map(({ key, values }) => [key, ...values] as const),
    );
  const others = of('operation');
  return [
    table('What their settings differ in', of('result')),
    ...(others.rows.length === 0 ? [] : [parts.folded('Those that decide no result', others)]),
  ];
}

/** The width of a comparison's text, which is shown where scripts are not allowed: as a usual terminal, in columns. */
const TEXT_WIDTH = 80;

/** One run as a self-contained page. Raises RunError when its record cannot be read, or the page was not built. */
export async function runFile(run: ComparedRun): Promise<string> {
  const { paths, report } = run;
  return reportDocument(`${paths.runName}: report`, await runReport(run), formatReport(report));
}

/** Runs side by side as a self-contained page. Raises RunError when the page was not built. */
export async function comparisonFile(comparison: Comparison): Promise<string> {
  const names = comparison.runs.map(({ report }) => report.run_name).join(', ');
  return reportDocument(
    `${names}: side by side`,
    await comparisonReport(comparison),
    formatComparison(comparison, TEXT_WIDTH),
  );
}
