/** `editrl run CONFIG`: trains a config, after the runs that it depends on. */
import { growable } from '../config/hash.js';
import type { LoadedConfig } from '../config/load.js';
import { UsageError } from '../core/errors.js';
import { tooFewFiles } from '../core/process.js';
import { noView, openView, type View } from '../launch/live/view.js';
import { Launcher } from '../launch/launcher.js';
import { isTrainable } from '../config/recipes.js';
import { recipeOf } from '../recipes/settings.js';
import { getPath } from '../core/schema/walk.js';
import type { RunSettings } from '../config/schema/run.js';
import { describeJob } from '../launch/slurm/queue.js';
import { submitRun } from '../launch/slurm/submit.js';
import { listCheckpoints } from '../run/checkpoints.js';
import { RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import { readState, type RunState } from '../run/state.js';
import { KILLED } from '../run/claim/stop_request.js';
import { outputWidth, printError, printJson, printLine, printSentence, printWarnings } from './shared/output.js';
import { abortOnSignals, INTERRUPTED } from './shared/signals.js';
import {
  configOf,
  configOptions,
  flag,
  switchOption,
  text,
  texts,
  trainingOptions,
  type Action,
  type Arguments,
} from './shared/verb.js';

/** `--fresh`. */
export const freshOption = switchOption('Start from scratch and move the previous run to RUN_NAME.old-1');

export const runVerb: Action = {
  positionals: '<config>',
  build: (yargs) =>
    configOptions(yargs)
      .options(trainingOptions)
      .option('fresh', freshOption)
      .example('$0 run configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet', 'Train on a laptop, or continue')
      .example(
        '$0 run configs/sft_s__rl_s.jsonnet --with configs/lib/tiny.libsonnet --set num_iterations=120',
        'Continue, with more iterations',
      ),
  run: async (args) => {
    const json = flag(args, 'json');
    const view = json ? noView : openView(process.stdout);
    view.busy(`reading ${text(args, 'config')}`);
    const requestedConfig = {
      ...(await configOf(args).finally(() => view.busy(null))),
      allowChanges: allowedChanges(args),
    };
    if (flag(args, 'fresh') && requestedConfig.allowChanges.length > 0) {
      throw new UsageError('found --fresh and --allow-changes', {
        next: 'A fresh run accepts any settings. Remove --allow-changes.',
      });
    }
    return trainOrSubmit(requestedConfig, { json, view, fresh: flag(args, 'fresh') });
  },
};

/** Runs a config on its `launch.backend`. Returns the exit code. */
export async function trainOrSubmit(config: LoadedConfig, how: OutputOptions): Promise<number> {
  return config.settings.launch.backend === 'slurm' ? submit(config, how) : trainAndReport(config, how);
}

export interface OutputOptions {
  readonly json: boolean;
  readonly view: View;
  /** Starts from scratch and moves the existing folder of this run_name aside. */
  readonly fresh?: boolean;
}

/** Submits the run to Slurm. `editrl report` shows its results later. */
async function submit(config: LoadedConfig, { json, fresh = false }: OutputOptions): Promise<number> {
  const { aside, ...submitted } = await submitRun(config, [process.execPath, process.argv[1]], fresh);
  if (aside !== null && !json) {
    printLine(`Starting ${config.settings.run_name} from scratch. The previous run moved to ${aside}.`);
  }
  if (json) {
    printJson({ run_name: config.settings.run_name, submitted });
    return 0;
  }
  for (const { job_id, runs } of submitted.arrays) printLine(`submitted  Slurm job ${job_id}: ${runs.join(', ')}`);
  for (const job of submitted.underWay) printLine(`submitted before  ${describeJob(job)}: ${job.run_name}`);
  for (const name of submitted.finished) printLine(`finished  ${name}`);
  return 0;
}

/** The keys of `--allow-changes`. */
export function allowedChanges(args: Arguments): string[] {
  return texts(args, 'allow-changes').flatMap((keys) =>
    keys
      .split(',')
      .map((key) => key.trim())
      .filter(Boolean),
  );
}

/** Reports the checkpoint of a stopped run and how to continue. */
export function describeInterruption(paths: RunPaths): string {
  const stopped = `${paths.runName} stopped${readState(paths)?.reason === KILLED ? ` (${KILLED})` : ''}`;
  // Only the other trainer knows which checkpoints it saved.
  if (typeof getPath(readRecord(paths)?.settings, 'launch.command.0') === 'string') {
    return `${stopped}. Repeat the command to continue.`;
  }
  const last = listCheckpoints(paths).at(-1);
  return last === undefined
    ? `${stopped} before its first checkpoint. Repeat the command to start from scratch.`
    : `${stopped} with a checkpoint of iteration ${last}. Repeat the command to continue.`;
}

/** Open files that a launcher, its servers and workers need: channels, logs, datasets, and one connection per judge request. */
const NEEDED_FILES = 512;

/** Runs a config to its end and prints the results. Returns the exit code. */
async function trainAndReport(config: LoadedConfig, { json, view, fresh = false }: OutputOptions): Promise<number> {
  const launcher = new Launcher({ view, command: process.argv.slice(2), ...stopOnSignals(view) });
  const paths = RunPaths.of(config.settings);
  const few = tooFewFiles('this process', NEEDED_FILES);
  if (few !== null) printWarnings([few]);
  try {
    const result = await launcher.run(config, { fresh }).finally(() => view.end());
    if (result.kind === 'interrupted') {
      if (!json) printSentence(describeInterruption(new RunPaths(config.settings.base_exp_dir, result.run_name)));
      return INTERRUPTED;
    }
    const [{ readRun }, { formatReport }, { encodeLine }] = await Promise.all([
      import('../run/report/read.js'),
      import('../run/report/text.js'),
      import('../run/journal.js'),
    ]);
    const report = readRun(paths);
    if (json) printJson(JSON.parse(encodeLine(report).line));
    else {
      const ending = describeEnding(config.settings, readState(paths), result.kind === 'already_finished');
      if (ending !== null) printSentence(ending);
      // Leaves the parts of the reward to `editrl report`, so the output fits on a terminal.
      const short = { ...report, heldout: { ...report.heldout, parts: {} } };
      printLine(`\n${formatReport(short, outputWidth())}`);
      printSentence(await describeNextSteps(config.settings));
    }
    return 0;
  } finally {
    await launcher.close();
  }
}

/** The commands that show and use a run. */
export async function describeNextSteps(settings: RunSettings): Promise<string> {
  const { openRecipeOf } = await import('../recipes/open.js');
  const { run_name: name } = settings;
  const edits = isTrainable(settings) && openRecipeOf(settings).writeEdit !== undefined;
  const edit = edits ? ` To edit an image: editrl edit ${name} IMAGE "INSTRUCTION".` : '';
  return `\nTo see more: editrl report ${name}, or editrl dashboard.${edit}`;
}

/** Explains why a run ended early or is finished, and how to continue. Null if the report is enough. */
export function describeEnding(settings: RunSettings, state: RunState | null, already: boolean): string | null {
  const { run_name, num_iterations } = settings;
  const patience = isTrainable(settings) ? recipeOf(settings).patience(settings) : null;
  if (state?.stopped_early === true && patience !== null) {
    return [
      `${run_name} stopped early at iteration ${state.iteration} of ${state.num_iterations}: ${state.reason ?? 'no further improvement'}. Raising num_iterations does not continue it.`,
      `To continue, raise the patience: --set ${patience.key}=${2 * patience.value} --allow-changes ${patience.key}`,
    ].join('\n');
  }
  if (!already) return null;
  const why = state?.stopped_early === true && state.reason !== null ? ` (${state.reason})` : '';
  const longer = `--set num_iterations=${2 * num_iterations}`;
  if (!isTrainable(settings) || growable(settings)) {
    return `${run_name} is finished${why}. To continue, raise num_iterations: ${longer}`;
  }
  const further = `To continue with the schedule stretched to the new end: ${longer} --allow-changes num_iterations`;
  return `${run_name} is finished${why}, and its learning rate schedule has ended. ${further}`;
}

/** The first Ctrl-C or hang-up requests a checkpoint and a stop. The second kills the run's processes. The third ends this process. */
function stopOnSignals(view: View): { stop: AbortSignal; kill: AbortSignal } {
  const message = 'stopping after this iteration (repeat to stop immediately)';
  // Above the live view if there is one, else on standard error, because standard output may be a file.
  const [stop, kill] = abortOnSignals(2, () => (process.stdout.isTTY ? view.say(message) : printError(message)), view);
  return { stop, kill };
}
