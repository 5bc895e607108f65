/** Runs side by side on the dashboard: their curves, what their settings differ in, and their paired differences. */
import { badRequest, Refusal } from '../http/refusal.js';
import { compareRead, letterOf } from '../run/report/compare.js';
import type { CurveGroup } from './curves.js';
import { comparisonParts } from './report/comparison.js';
import { MOST_GROUPS } from './report/curves.js';
import { wireRun } from './run_list.js';
import type { IndexedRun, RunsIndex } from './runs_index.js';
import type { SeriesCache } from './series.js';
import type { WireComparison } from './wire.js';

/** The runs that a query names, and the names of those that are not there, as after they were removed. */
export interface Chosen {
  readonly runs: readonly IndexedRun[];
  readonly missing: readonly string[];
}

/** Raises Refusal: 400 for more runs than can be told apart, 404 if none of them is there. */
export function chosenRuns(index: RunsIndex, query: URLSearchParams): Chosen {
  const ids = [...new Set(query.getAll('run'))];
  if (ids.length > MOST_GROUPS) {
    throw badRequest(`${ids.length} runs were chosen; allowed: at most ${MOST_GROUPS} side by side.`, 'run');
  }
  const found = ids.map((id) => index.get(id));
  const runs = found.flatMap((run) => run ?? []);
  const missing = ids.filter((_, at) => found[at] === null).map((id) => id.slice(0, 120));
  if (runs.length > 0) return { runs, missing };
  throw new Refusal('not_found', `There is no run '${missing.join("', '")}' here.`);
}

/** One group of curves for each run; letters tell runs of the same name in different folders apart. */
export function groupsOf({ runs }: Chosen): CurveGroup[] {
  return runs.map(({ paths }, at) => ({ label: `${letterOf(at)}: ${paths.runName}`, runs: [paths] }));
}

/** Raises RunError when the records of a run cannot be read. */
export async function comparisonOf({ runs, missing }: Chosen, cache: SeriesCache): Promise<WireComparison> {
  const read = [];
  for (const { paths } of runs) {
    const series = cache.get(paths.metrics);
    await series.readWhole();
    read.push({ paths, lines: await series.columns.toLines() });
  }
  const { about, facts, notice, leading, results, settings, times, alarms } = comparisonParts(compareRead(read));
  const gone = missing.map((id) => `There is no run '${id}' here any more; it is left out.`);
  return {
    runs: runs.map((run) => wireRun(run)),
    about,
    facts,
    notice: gone.length === 0 ? notice : { title: 'Mind', texts: [...gone, ...(notice?.texts ?? [])] },
    leading,
    sections: [
      { title: 'What their settings differ in', blocks: settings },
      { title: 'Results', blocks: [results] },
      { title: 'Curves', blocks: [{ kind: 'curves' }] },
      { title: 'Time', blocks: [times] },
      { title: 'Hack alarms', blocks: alarms },
    ],
  };
}
