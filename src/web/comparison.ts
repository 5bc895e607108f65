/** Runs side by side on the dashboard: their curves, what their settings differ in, and their paired differences. */
import { existsSync } from 'node:fs';
import { badRequest, Refusal } from '../http/refusal.js';
import type { Reply } from '../http/reply.js';
import { readRun } from '../run/report/read.js';
import { compareRead, type ComparedRun } from '../run/report/compare.js';
import type { CurveGroup } from './curves.js';
import { GUARD_HEADERS } from './page_files.js';
import { SERIES_COLOURS } from './panels.js';
import { comparisonParts, letteredName } from './report/comparison.js';
import { comparisonFile, runFile } from './report/files.js';
import { wireRun } from './run_list.js';
import type { IndexedRun, RunsIndex } from './runs_index.js';
import type { SeriesCache } from './series.js';
import type { WireComparison } from './wire.js';

/** The runs that a query names, and the names of those that are not there, as after they were removed. */
export interface ChosenRuns {
  readonly runs: readonly IndexedRun[];
  readonly missing: readonly string[];
}

/** Raises Refusal: 400 for more runs than can be told apart, 404 if none of them is there. */
export function chosenRuns(index: RunsIndex, query: URLSearchParams): ChosenRuns {
  const ids = [...new Set(query.getAll('run'))];
  if (ids.length > SERIES_COLOURS) {
    throw badRequest(`${ids.length} runs were chosen; allowed: at most ${SERIES_COLOURS} side by side.`, 'run');
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
async function readChosen({ runs }: ChosenRuns, cache: SeriesCache): Promise<ComparedRun[]> {
  const read: ComparedRun[] = [];
  for (const { paths } of runs) {
    const series = cache.get(paths.metrics);
    await series.readWhole();
    const lines = await series.columns.toLines();
    read.push({ paths, report: readRun(paths, lines), lines });
    // The page asks for curves at the same time.
    await new Promise<void>((resolve) => setImmediate(resolve));
  }
  return read;
}

/**
 * The report of the runs as one file to download: of a single run, or of runs side by side. Raises Refusal 404 if one of them is not there: a file
 * does not say later what it lacks. Raises RunError when the records of a run cannot be read, or the page was not built.
 */
export async function reportFileOf(chosen: ChosenRuns, cache: SeriesCache): Promise<Reply> {
  const { missing } = chosen;
  if (missing.length > 0) throw new Refusal('not_found', `There is no run '${missing.join("', '")}' here any more.`);
  const read = await readChosen(chosen, cache);
  const [first] = read;
  const body = read.length === 1 ? await runFile(first) : await comparisonFile(compareRead(read));
  const headers = { ...GUARD_HEADERS, 'cache-control': 'no-store', 'content-disposition': 'attachment' };
  return { status: 200, type: 'text/html; charset=utf-8', body, headers };
}

/** Raises RunError when the records of a run cannot be read. */
export async function comparisonOf(chosen: ChosenRuns, cache: SeriesCache): Promise<WireComparison> {
  const { runs, missing } = chosen;
  const read = await readChosen(chosen, cache);
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
