/** `editrl ls` lists all runs. `editrl status RUN…` shows some. */
import { printable } from '../core/errors.js';
import { formatAge } from '../run/claim/lock.js';
import { findReported, findRun, listExperiments, listRuns, searchFolders } from '../run/find.js';
import { isRunName } from '../run/paths.js';
import { readStatuses } from '../launch/slurm/status.js';
import { showBest } from '../run/chosen_checkpoint.js';
import { showSpent } from '../run/spending.js';
import type { RunStatus, ShownState } from '../run/status.js';
import { formatTable, printJson, printLine, printWarnings, styled, type Cell, type Style } from './shared/output.js';
import { expDirOption, flag, jsonOption, text, texts, type Action, type Arguments } from './shared/verb.js';

const STYLES: Readonly<Record<ShownState, Style | null>> = {
  queued: 'dim',
  running: 'green',
  waiting: 'yellow',
  finished: null,
  failed: 'red',
  interrupted: 'yellow',
  dead: 'red',
  unreadable: 'red',
};

export const lsVerb: Action = {
  positionals: '',
  build: (yargs) =>
    yargs
      .options({ 'exp-dir': expDirOption, json: jsonOption })
      .example('$0 ls', 'Every run, with its state and progress')
      .example('$0 ls --exp-dir runs/tiny --json', 'The runs of one directory'),
  run: show,
};

export const statusVerb: Action = {
  positionals: '<runs..>',
  build: (yargs) =>
    yargs
      .positional('runs', {
        type: 'string',
        array: true,
        describe: 'run_names, folders of runs, or swept experiments',
      })
      .options({ 'exp-dir': expDirOption, json: jsonOption })
      .example('$0 status sft_s__rl_s', 'One run')
      .example('$0 status reward_ablation --json', 'The runs of an experiment'),
  run: show,
};

async function show(args: Arguments): Promise<number> {
  const { runs, problems, folders } = await statusesOf(args);
  printWarnings(problems);
  if (flag(args, 'json')) printJson({ runs });
  else if (runs.length === 0) printLine(`No runs in ${folders.join(' or ')}.`);
  else printLine(formatStatuses(runs));
  return 0;
}

/**
 * The statuses of the given runs, or of all runs. A name is a run, a run's folder, or an experiment, which selects its started runs. Raises RunError
 * for an unknown or ambiguous name.
 */
export async function statusesOf(args: Arguments): Promise<{
  readonly runs: readonly RunStatus[];
  readonly problems: readonly string[];
  readonly folders: readonly string[];
}> {
  const expDir = text(args, 'exp-dir');
  const runNames = texts(args, 'runs');
  const folders = searchFolders(expDir);
  const all = listRuns(folders);
  const there = new Set(all.map(({ runName }) => runName));
  const known = runNames
    .filter(isRunName)
    .map((name) => ({ name, runs: there.has(name) ? null : runsOfExperiment(name, expDir) }));
  const names = known.flatMap(({ name, runs }) => runs ?? [name]);
  const elsewhere = runNames.filter((name) => !isRunName(name)).map((path) => findRun(path, expDir));
  const listed = all.filter(({ runName }) => runNames.length === 0 || names.includes(runName));
  const { statuses, problems } = await readStatuses([...listed, ...elsewhere], folders);
  const wanted = new Set([...names, ...elsewhere.map(({ runName }) => runName)]);
  const runs = statuses.filter(({ run_name }) => runNames.length === 0 || wanted.has(run_name));
  // A run in Slurm's queue has no folder yet. Any other name has to match exactly one run.
  for (const { name, runs: ofExperiment } of known) {
    if (ofExperiment === null && runs.filter(({ run_name }) => run_name === name).length !== 1) findRun(name, expDir);
  }
  return { runs, problems, folders };
}

/** The runs of an experiment. Null if there is no experiment with this name. */
function runsOfExperiment(name: string, expDir: string): string[] | null {
  if (!listExperiments(searchFolders(expDir)).some((one) => one.name === name)) return null;
  const found = findReported(name, expDir);
  if (found.kind === 'run') return null;
  const { cells, parents } = found.record;
  return [...parents, ...cells].map(({ run_name }) => run_name);
}

/** The table for terminals, with a run's host and reason below its row. */
export function formatStatuses(statuses: readonly RunStatus[]): string {
  const columns = [
    { title: 'run', alone: true },
    { title: 'state' },
    { title: 'iteration', align: 'right' },
    { title: 'reward', align: 'right' },
    { title: 'heartbeat', align: 'right' },
  ] as const;
  const rows = statuses.map((status): Cell[] => {
    const style = STYLES[status.state];
    return [
      status.run_name,
      style === null ? status.state : styled(status.state, style),
      `${status.iteration}/${status.num_iterations}`,
      status.reward === null ? null : status.reward.toFixed(3),
      status.heartbeat_age_s === null ? null : `${formatAge(status.heartbeat_age_s)} ago`,
    ];
  });
  const below = (row: number): string[] => {
    const { where, reason, alarms, spent, best_checkpoint: best } = statuses[row];
    return [
      ...(alarms.length === 0 ? [] : [styled(`ALARM ${printable(alarms.join(', '))}`, 'red')]),
      ...[
        best === null ? null : `best checkpoint: ${showBest(best)}`,
        where,
        reason,
        spent === null ? null : showSpent(spent),
      ].flatMap((text) => (text === null ? [] : [styled(printable(text), 'dim')])),
    ];
  };
  return formatTable(columns, rows, { below });
}
