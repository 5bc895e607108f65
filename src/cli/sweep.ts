/** `editrl sweep EXPERIMENT`: trains all cells of an experiment, or continues an interrupted sweep. */
import { loadExperiment, type Experiment } from '../config/experiment/load.js';
import type { LoadedConfig } from '../config/load.js';
import { must } from '../core/errors.js';
import { painter, plainPaint } from '../core/terminal.js';
import {
  prepareSweep,
  sweep,
  type PreparedSweep,
  type RunOutcome,
  type SweepChoice,
  type SweepLimits,
  type SweepOutcome,
} from '../launch/sweep/experiment.js';
import { PlainView, openView, type View } from '../launch/live/view.js';
import { submitSweep, usesSlurm } from '../launch/slurm/submit.js';
import type { Runner } from '../launch/sweep/sweep.js';
import { SweepReporter } from '../launch/sweep/reporter.js';
import { encodeLine } from '../run/journal.js';
import type { CheckOptions } from '../launch/preflight/preflight.js';
import { formatTable, printJson, printLine, printWarnings } from './shared/output.js';
import { formatResults } from './report.js';
import { abortOnSignals, INTERRUPTED } from './shared/signals.js';
import {
  changesOf,
  experimentOptions,
  flag,
  numberOption,
  switchOption,
  text,
  wholeNumber,
  type Action,
} from './shared/verb.js';

export const sweepVerb: Action = {
  positionals: '<experiment>',
  build: (yargs) =>
    experimentOptions(yargs)
      .option('max-parallel', numberOption('Maximum parallel runs (default: limited by cores, GPUs and memory)'))
      .option('failed', switchOption('Only cells that failed or were interrupted'))
      .option('fail-fast', switchOption('Stop everything when one run fails'))
      .option('retries', { ...numberOption('Restarts of a failed run'), default: 0 })
      .option('json', switchOption('Print only one JSON document at the end'))
      .example(
        '$0 sweep experiments/reward_ablation.jsonnet --with configs/lib/tiny.libsonnet',
        'Train every cell, or continue',
      )
      .example(
        "$0 sweep experiments/earl_table.jsonnet --only '*seed-1' --max-parallel 1",
        'One seed, one run at a time',
      )
      .example('$0 sweep experiments/earl_table.jsonnet --failed --retries 1', 'Retry failed cells'),
  run: async (args) => {
    const retries = wholeNumber(args, 'retries', 0) ?? 0;
    const maxParallel = wholeNumber(args, 'max-parallel', 1);
    const json = flag(args, 'json');
    // With --json, standard output contains only the document, and progress goes to standard error.
    const shown = json ? new PlainView((line) => void process.stderr.write(line)) : openView(process.stdout);
    const file = text(args, 'experiment');
    shown.busy(`reading ${file}`);
    const experiment = await loadExperiment({ file, ...changesOf(args) }).finally(() => shown.busy(null));
    printWarnings(experiment.warnings);
    const only = text(args, 'only');
    const choice = { only: only === '' ? null : only, failed: flag(args, 'failed') };
    const failFast = flag(args, 'fail-fast');
    const limits = { maxParallel, retries, failFast };
    if (usesSlurm(experiment)) return submit(experiment, choice, limits, json);
    const prepared = prepareSweep(experiment, choice, limits);
    if (prepared.jobs.length === 0) {
      if (json) printJson({ experiment: experiment.name, runs: [], results: null });
      else printLine(`No run of ${experiment.name} has failed.`);
      return 0;
    }
    return start(prepared, json, shown);
  },
};

function configsOf({ jobs }: PreparedSweep): LoadedConfig[] {
  return jobs.map(({ config }) => config);
}

/** Rejects run folders with other settings one by one, while the other runs continue. */
function preflightOptionsOf({ devices }: PreparedSweep): CheckOptions {
  return { devices: () => devices, claimed: [] };
}

async function start(prepared: PreparedSweep, json: boolean, shown: View): Promise<number> {
  const view = new SweepReporter(prepared.experiment.name, shown, json ? plainPaint : painter(process.stdout));
  const onStop = (): void => view.remark('stopping after the current iterations (repeat to stop immediately)');
  const [stop] = abortOnSignals(1, onStop, view);
  // Loads the training code only if there is something to train.
  const { Launcher } = await import('../launch/launcher.js');
  const launcher = new Launcher({
    view: shown,
    command: process.argv.slice(2),
    stop,
    severalRuns: prepared.jobs.length > 1,
  });
  const runner: Runner = launcher;
  try {
    const checked = await launcher.ready(configsOf(prepared), preflightOptionsOf(prepared));
    if (checked === null) return INTERRUPTED;
    const outcome = await sweep(prepared, runner, view, stop, must(checked.memory(), 'the memory of known devices'));
    if (json) printOutcome(prepared, outcome);
    else showOutcome(outcome);
    if (outcome.stopped) return INTERRUPTED;
    return outcome.runs.every(({ state }) => state === 'finished') ? 0 : 1;
  } finally {
    await launcher.close();
  }
}

async function submit(
  experiment: Experiment,
  choice: SweepChoice,
  limits: SweepLimits,
  json: boolean,
): Promise<number> {
  const submitted = await submitSweep(experiment, choice, limits, [process.execPath, process.argv[1]]);
  if (json) {
    printJson({ experiment: experiment.name, submitted });
    return 0;
  }
  for (const { job_id, runs } of submitted.arrays) printLine(`submitted  Slurm job ${job_id}: ${runs.join(', ')}`);
  const { finished, underWay } = submitted;
  printLine(
    `${experiment.name}: ${finished.length} finished, ${underWay.length} already in the queue. Follow them with \`editrl status ${experiment.name}\`.`,
  );
  return 0;
}

function printOutcome({ experiment }: PreparedSweep, { runs, results }: SweepOutcome): void {
  printJson(JSON.parse(encodeLine({ experiment: experiment.name, runs, results }).line));
}

function showOutcome({ runs, results, resultsFile, stopped }: SweepOutcome): void {
  printLine(`\n${formatResults(results)}`);
  if (resultsFile !== null) printLine(`\ntable: ${resultsFile}.md`);
  const open = runs.filter(({ state }) => state !== 'finished');
  if (open.length > 0) printLine(`\n${unfinishedLines(open)}`);
  if (stopped) printLine('\nStopped. Repeat the command to continue.');
  else if (runs.some(({ state }) => state === 'failed')) {
    printLine('\nTo retry the failed runs, repeat the command with --failed.');
  }
}

/** The runs that did not finish, one line each. */
function unfinishedLines(runs: readonly RunOutcome[]): string {
  const rows = runs.map(({ run_name, state, reason }) => [run_name, state, reason ?? '']);
  return formatTable([{ title: 'not finished' }, { title: 'state' }, { title: 'reason' }], oneLine(rows));
}

/** Shortens a reason to one line. The full reason was printed when it happened. */
function oneLine(rows: readonly (readonly string[])[]): string[][] {
  return rows.map((row) =>
    row.map((cell) => {
      const [first, second = ''] = cell.split('\n');
      return first.endsWith(':') ? `${first} ${second.trim()}` : first;
    }),
  );
}
