/** The content of a run's page besides its curves, episodes and logs. */
import { existsSync } from 'node:fs';
import { EditrlError } from '../core/errors.js';
import { Refusal } from '../http/refusal.js';
import { listCheckpoints } from '../run/checkpoints.js';
import type { RunRecord } from '../run/record.js';
import { leavesOf } from '../schema/paths.js';
import { actionsOf } from './actions.js';
import { wireRun } from './run_list.js';
import { recordOf, type IndexedRun, type RunsIndex } from './runs_index.js';
import type { WireRunPage } from './wire.js';

/** The run that a query names by its id. Raises Refusal: 404 if there is none, as after it was removed. */
export function runOf(index: RunsIndex, query: URLSearchParams): IndexedRun {
  const id = query.get('run') ?? '';
  const run = index.get(id);
  if (run !== null) return run;
  const unread = index.unread > 0 ? ' yet; not all runs have been read' : '';
  throw new Refusal('not_found', `There is no run '${id.slice(0, 120)}' here${unread}.`);
}

export function runPage(index: RunsIndex, run: IndexedRun): WireRunPage {
  const { paths } = run;
  const record = recordOf(paths);
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
    processes: typeof processes === 'number' ? processes : 1,
    has_contact_sheet: existsSync(paths.contactSheet),
    actions: actionsOf(run, record),
  };
}

/** Newest first. Fields that another version did not write stay empty. */
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
