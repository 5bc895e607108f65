/** The content of a run's page except curves, episodes and logs. */
import { existsSync } from 'node:fs';
import { EditrlError } from '../core/errors.js';
import { Refusal } from '../core/http/refusal.js';
import { showBest } from '../run/chosen_checkpoint.js';
import { listCheckpoints } from '../run/checkpoints.js';
import { secondsLeft } from '../run/progress.js';
import type { RunPaths } from '../run/paths.js';
import type { RunRecord } from '../run/record.js';
import { alarmLimits, alarmsIn } from '../run/report/alarms.js';
import { leavesOf } from '../core/schema/walk.js';
import { actionsOf } from './actions.js';
import { wireRun } from './run_list.js';
import { recordOf, type IndexedRun, type RunsIndex } from './runs_index.js';
import type { MetricsSeries, SeriesCache } from './series.js';
import type { WireAlarm, WireRunPage } from './wire.js';

/** Number of recent lines for the estimate of the remaining time. */
const TIMED_LINES = 50;

/** The run that a query names by its id. Raises Refusal 404 if there is none. */
export function runOf(index: RunsIndex, query: URLSearchParams): IndexedRun {
  const id = query.get('run') ?? '';
  const run = index.get(id);
  if (run !== null) return run;
  const unread = index.unread > 0 ? ' The dashboard is still reading runs.' : '';
  throw new Refusal('not_found', `Run not found: ${id.slice(0, 120)}.${unread}`);
}

export async function runPage(index: RunsIndex, cache: SeriesCache, run: IndexedRun): Promise<WireRunPage> {
  const { paths } = run;
  const record = recordOf(paths);
  const series = await readSeries(cache, paths);
  const task = index.settings.valueOf(run.settings, 'task');
  const processes = index.settings.valueOf(run.settings, 'launch.processes');
  return {
    run: wireRun(run),
    dir: paths.dir,
    task: typeof task === 'string' ? task : null,
    settings: record === null ? [] : leavesOf(record.settings),
    parents: run.parents.map((name) => ({ name, id: index.sibling(run, name)?.id ?? null })),
    attempts: record === null ? [] : attemptsOf(record),
    checkpoints: checkpointsOf(run),
    best_checkpoint: run.status.best_checkpoint === null ? null : showBest(run.status.best_checkpoint),
    processes: typeof processes === 'number' ? processes : 1,
    has_contact_sheet: existsSync(paths.contactSheet),
    alarms: alarmsOf(index, run, series),
    seconds_left: secondsLeftOf(run, series),
    actions: actionsOf(run, record),
  };
}

/** The readable part of the metrics. */
async function readSeries(cache: SeriesCache, { metrics }: RunPaths): Promise<MetricsSeries> {
  const series = cache.get(metrics);
  try {
    await series.readWhole();
  } catch (error) {
    // The run's state and its curves report why the metrics are unreadable.
    if (!(error instanceof EditrlError)) throw error;
  }
  return series;
}

function alarmsOf(index: RunsIndex, { settings }: IndexedRun, { columns }: MetricsSeries): WireAlarm[] {
  return alarmsIn(columns).map(({ name, metric, value, from, to, active }) => ({
    name,
    metric,
    value,
    span: [from, to],
    active,
    limits: alarmLimits(name, (path) => index.settings.valueOf(settings, path)),
  }));
}

function secondsLeftOf({ status }: IndexedRun, { columns }: MetricsSeries): number | null {
  if (status.state !== 'running') return null;
  return secondsLeft([...columns.column('time/total').slice(-TIMED_LINES)], status.num_iterations - status.iteration);
}

/** Newest first. Fields that another version did not write are empty. */
function attemptsOf({ attempts }: RunRecord): WireRunPage['attempts'] {
  return [...attempts].reverse().map(({ attempt, started_at, from_iteration, host, devices, command, versions }) => ({
    attempt,
    started_at,
    from_iteration,
    host,
    devices: (devices as readonly string[] | undefined) ?? [],
    command: ((command as readonly string[] | undefined) ?? []).join(' '),
    version: (versions as Readonly<Record<string, string>> | undefined)?.['editrl'] ?? null,
  }));
}

function checkpointsOf({ paths }: IndexedRun): number[] {
  try {
    return [...listCheckpoints(paths)];
  } catch (error) {
    if (error instanceof EditrlError) return [];
    throw error;
  }
}
