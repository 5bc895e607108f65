/** `editrl plan EXPERIMENT`: shows the runs of an experiment, their states, and the obstacles. It starts nothing. */
import { loadExperiment } from '../config/experiment/load.js';
import { detectDevices, gibibytes } from '../launch/machine/devices.js';
import { planExperiment, type ExperimentPlan, type PlannedRun } from '../launch/plan.js';
import { fewerAtOnce, matcherOf, requireChosen } from '../launch/sweep/plan.js';
import { printable } from '../core/errors.js';
import { wrap } from '../core/terminal.js';
import { shortName } from '../launch/live/screen.js';
import { formatDuration } from '../run/progress.js';
import {
  formatTable,
  outputWidth,
  printJson,
  printLine,
  printWarnings,
  printWrapped,
  styled,
} from './shared/output.js';
import { changesOf, experimentOptions, flag, jsonOption, text, type Action, type Arguments } from './shared/verb.js';

export const planVerb: Action = {
  positionals: '<experiment>',
  build: (yargs) =>
    experimentOptions(yargs)
      .option('json', jsonOption)
      .example('$0 plan experiments/reward_ablation.jsonnet', 'Cells, their states, and the remaining time')
      .example("$0 plan experiments/earl_table.jsonnet --only '*seed-1'", 'The runs of one seed'),
  run: async (args) => {
    const { plan, warnings } = await planOf(args);
    printWarnings(warnings);
    if (flag(args, 'json')) {
      printJson(plan);
      return plan.exit_code;
    }
    printLine(`${plan.experiment}: ${count(plan.cells.length, 'cell')}, ${count(plan.parents.length, 'parent')}\n`);
    printLine(table('cell', plan.cells, plan.experiment));
    if (plan.parents.length > 0) printLine(`\n${table('parent', plan.parents, plan.experiment)}`);
    for (const line of footer([...plan.parents, ...plan.cells])) printWrapped(line);
    if (plan.at_once !== null) printWrapped(`a sweep starts ${fewerAtOnce(plan.at_once)}`);
    for (const model of plan.downloads) {
      printWrapped(`not downloaded yet: ${model} (downloaded before the first run starts)`);
    }
    for (const { run, message } of plan.obstacles) printWrapped(`blocked ${run}: ${message}`);
    for (const warning of plan.warnings) printWrapped(`warning: ${warning}`);
    return plan.exit_code;
  },
};

/** The plan of the given experiment, and the warnings of its evaluation. Raises the errors of loading it. */
export async function planOf(args: Arguments): Promise<{ plan: ExperimentPlan; warnings: readonly string[] }> {
  const file = text(args, 'experiment');
  const experiment = await loadExperiment({ file, ...changesOf(args) });
  const only = text(args, 'only');
  const cells = only === '' ? experiment.cells : experiment.cells.filter(matcherOf(only));
  if (only !== '') requireChosen(cells, experiment, only);
  const needed = new Set(cells.flatMap(({ parents }) => parents));
  for (const name of needed) {
    for (const up of experiment.parents.find(({ run_name }) => run_name === name)?.parents ?? []) needed.add(up);
  }
  const parents = experiment.parents.filter(({ run_name }) => needed.has(run_name));
  const plan = await planExperiment({ ...experiment, cells, parents }, detectDevices());
  return { plan, warnings: experiment.warnings };
}

function count(number: number, word: string): string {
  return `${number} ${word}${number === 1 ? '' : 's'}`;
}

/**
 * Shows cells by their axes. Each cell's parent run and differences are dimmed on the lines below it, because they do not fit on its own line.
 */
function table(title: string, runs: readonly PlannedRun[], experiment: string): string {
  const columns = [
    { title, alone: true },
    { title: 'state' },
    { title: 'devices', align: 'right' as const },
    { title: 'memory', align: 'right' as const },
    { title: 'time left', align: 'right' as const },
  ];
  const rows = runs.map((run) => [
    shortName(experiment, run.run_name),
    run.state,
    deviceCount(run),
    run.memory_bytes === null ? null : `${gibibytes(run.memory_bytes)}${run.memory_advice === null ? '' : ' !'}`,
    run.seconds_left === null ? null : run.seconds_left === 0 ? '' : formatDuration(run.seconds_left),
  ]);
  const from = (run: PlannedRun): string => run.parents.map((name) => shortName(experiment, name)).join(', ');
  const shared = runs.length > 1 && runs.every((run) => from(run) === from(runs[0])) ? from(runs[0]) : '';
  const below = (row: number): string[] => {
    const { differs, placement } = runs[row];
    const own = from(runs[row]);
    const differences = differencesOf(differs);
    const all = [
      ...(own === '' || own === shared ? [] : [`initialized from ${own}`]),
      ...(placement === null ? [] : [placement]),
      ...(differences === '' ? [] : [`differs in ${differences}`]),
    ].join('; ');
    return all === '' ? [] : [styled(all, 'dim')];
  };
  const lines = shared === '' ? [] : wrap(`all are initialized from ${shared}`, outputWidth());
  return [formatTable(columns, rows, { below }), ...lines].join('\n');
}

function deviceCount({ devices, device }: PlannedRun): string {
  return device === 'cpu' ? `${devices} CPU` : `${devices} GPU${devices === 1 ? '' : 's'}`;
}

const SHOWN_DIFFERENCES = 3;

/** A few of the different settings, without references to other runs, which have their own line. */
function differencesOf(differs: PlannedRun['differs']): string {
  const shown = Object.entries(differs).filter(([, value]) => typeof value !== 'object' || value === null);
  const words = shown.slice(0, SHOWN_DIFFERENCES).map(([key, value]) => printable(`${key}=${String(value)}`));
  return [...words, ...(shown.length > SHOWN_DIFFERENCES ? [`+${shown.length - SHOWN_DIFFERENCES}`] : [])].join(' ');
}

/** Remaining judge requests of all runs. */
function questions(runs: readonly PlannedRun[]): string[] {
  const left = runs.reduce((sum, { judge_questions: requests }) => sum + (requests?.left ?? 0), 0);
  return left === 0 ? [] : [`remaining judge requests: at most ${left.toLocaleString('en-US')}, without retries`];
}

function footer(runs: readonly PlannedRun[]): string[] {
  const done = runs.filter(({ state }) => state === 'finished').length;
  const left = runs.flatMap(({ seconds_left }) => seconds_left ?? []).reduce((sum, seconds) => sum + seconds, 0);
  const unknown = runs.filter(({ seconds_left }) => seconds_left === null).length;
  const time =
    unknown === runs.length
      ? 'unknown (estimates come from finished runs of the same task and algorithm)'
      : formatDuration(left);
  const partly = unknown > 0 && unknown < runs.length ? `, and ${count(unknown, 'run')} of unknown length` : '';
  const changed = runs.filter(({ state }) => state === 'changed').length;
  const extended = runs.filter(({ state }) => state === 'extended').length;
  const tight = runs.find(({ memory_advice }) => memory_advice !== null);
  return [
    `\n${done} of ${count(runs.length, 'run')} finished; time left, one run at a time: ${time}${partly}`,
    ...questions(runs),
    ...(changed === 0
      ? []
      : [
          `${count(changed, 'run')} changed: their folders contain runs with other settings. Rename the experiment or move the folders away.`,
        ]),
    ...(extended === 0
      ? []
      : [
          `${count(extended, 'run')} extended: finished with fewer iterations than configured. A sweep trains the rest.`,
        ]),
    ...(runs.some(({ memory_bytes }) => memory_bytes === null)
      ? ['memory –: unknown, because a model is not on this machine yet, or another program trains the run']
      : []),
    ...(tight === undefined ? [] : [`! exceeds the free memory: ${String(tight.memory_advice)}`]),
  ];
}
