/** Comparisons of runs on the dashboard: their curves, different settings, and paired differences. */
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

/** The runs that a query names, and the ids of missing runs, for example removed ones. */
export interface ChosenRuns {
  readonly runs: readonly IndexedRun[];
  readonly missing: readonly string[];
}

/** Raises Refusal: 400 for more runs than there are colors, 404 if none of the runs exists. */
export function chosenRuns(index: RunsIndex, query: URLSearchParams): ChosenRuns {
  const ids = [...new Set(query.getAll('run'))];
  if (ids.length > SERIES_COLORS) {
    throw badRequest(`Cannot compare ${ids.length} runs. Allowed: at most ${SERIES_COLORS}.`, 'run');
  }
  const found = ids.map((id) => index.get(id));
  const runs = found.flatMap((run) => run ?? []);
  const missing = ids.filter((_, at) => found[at] === null).map((id) => id.slice(0, 120));
  if (runs.length > 0) return { runs, missing };
  throw new Refusal('not_found', `Run not found: ${missing.join(', ')}.`);
}

/** One group of curves per run. Letters distinguish runs of the same name in different folders. */
export function groupsOf({ runs }: ChosenRuns): CurveGroup[] {
  return runs.map(({ paths }, at) => ({ label: letteredName(paths.runName, at), runs: [paths] }));
}

/** Reads the runs with their metrics, one run at a time. Raises RunError for unreadable records. */
async function readChosen({ runs }: ChosenRuns): Promise<ComparedRun[]> {
  const read: ComparedRun[] = [];
  for (const { paths } of runs) {
    const lines = readMetrics(paths);
    read.push({ paths, report: readRun(paths, lines), lines });
    // Lets other requests proceed between two runs.
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  return read;
}

/**
 * The report of one run, or the comparison of several, as a file to download. Raises Refusal 404 if a run is missing. Raises RunError for unreadable
 * records, or if the page was not built.
 */
export async function reportFileOf(chosen: ChosenRuns): Promise<Reply> {
  const { missing } = chosen;
  if (missing.length > 0) throw new Refusal('not_found', `Run no longer exists: ${missing.join(', ')}.`);
  const read = await readChosen(chosen);
  const [first] = read;
  const body = read.length === 1 ? await runFile(first) : await comparisonFile(compareRead(read));
  const headers = { ...GUARD_HEADERS, 'cache-control': 'no-store', 'content-disposition': 'attachment' };
  return { status: 200, type: 'text/html; charset=utf-8', body, headers };
}

/** Raises RunError for unreadable records. */
export async function comparisonOf(chosen: ChosenRuns): Promise<WireComparison> {
  const { runs, missing } = chosen;
  const read = await readChosen(chosen);
  const { about, facts, notice, results, settings, times, alarms } = comparisonParts(compareRead(read));
  const gone = missing.map((id) => `Run ${id} no longer exists and is left out.`);
  return {
    runs: runs.map((run) => wireRun(run)),
    with_contact_sheet: runs.filter(({ paths }) => existsSync(paths.contactSheet)).map(({ id }) => id),
    about,
    facts,
    notice: gone.length === 0 ? notice : { title: 'Note', texts: [...gone, ...(notice?.texts ?? [])] },
    above_curves: [
      { title: 'Different settings', blocks: settings },
      { title: 'Results', blocks: [results] },
    ],
    sections: [
      { title: 'Time', blocks: [times] },
      { title: 'Hack alarms', blocks: alarms },
    ],
  };
}

/** The texts and tables of a comparison. */
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
      'Held-out rewards before and after training. Paired differences compare the same prompts at each run’s last evaluation. Standard errors are over prompts and do not include the variation between seeds.',
    facts: facts(comparison),
    notice: parts.notice('Note', remarks),
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
  const images = new parts.ReportImages();
  const sheets: WireBlock[] = [];
  for (const [at, { report, paths }] of runs.entries()) {
    sheets.push(...(await images.sheets(letteredName(report.run_name, at), paths)));
  }
  return {
    ...head,
    heading: `Comparison of ${runs.length} runs`,
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
      { title: 'Different settings', blocks: differences },
      { title: 'Curves', blocks: [{ kind: 'curves' }] },
      { title: 'Time', blocks: [times] },
      { title: 'Hack alarms', blocks: alarms },
      { title: 'Contact sheets', blocks: sheets },
    ],
    images: images.addresses,
  };
}

/** A run's letter and name. The letter distinguishes runs of the same name in different folders. */
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
          ? 'reference of the comparison'
          : 'no shared prompts with the same reward or measure'
        : `${signedEstimate(found)} against ${letterOf(0)}${found.by === null ? '' : `, ${found.by}`}, paired over ${found.n} prompts, ${found.manner}`;
    const shown = (mean: number | null): string => (mean === null ? NONE : showHeldOut({ mean, stderr: null }));
    const value = `${shown(before)} → ${shown(after)}`;
    return { name: letteredName(report.run_name, at), value, more };
  });
}

function settings({ settings: all, runs }: Comparison): WireBlock[] {
  if (all === null) return [paragraph('The settings cannot be compared. See the note above.')];
  if (all.length === 0) return [paragraph('None.')];
  const of = (effect: 'result' | 'operation'): ReturnType<typeof parts.differences> =>
    parts.differences(
      runs.map((_, at) => letterOf(at)),
      all.filter((one) => one.effect === effect).map(({ key, values }) => [key, ...values] as const),
    );
  const others = of('operation');
  return [
    table('Different settings', of('result')),
    ...(others.rows.length === 0 ? [] : [parts.folded('Settings that do not affect results', others)]),
  ];
}

/** Width of the text version, which readers see if scripts are disabled, in columns. */
const TEXT_WIDTH = 80;

/** The report of one run as a self-contained page. Raises RunError for an unreadable record, or if the page was not built. */
export async function runFile(run: ComparedRun): Promise<string> {
  const { paths, report } = run;
  return reportDocument(`${paths.runName}: report`, await runReport(run), formatReport(report));
}

/** The comparison of runs as a self-contained page. Raises RunError if the page was not built. */
export async function comparisonFile(comparison: Comparison): Promise<string> {
  const names = comparison.runs.map(({ report }) => report.run_name).join(', ');
  return reportDocument(
    `${names}: comparison`,
    await comparisonReport(comparison),
    formatComparison(comparison, TEXT_WIDTH),
  );
}
