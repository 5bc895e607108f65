/** `editrl resume RUN` continues a run from its records. `editrl fork RUN --as NAME` starts a new run from one of its checkpoints. */
import type { LoadedConfig } from '../config/load.js';
import { isSet } from '../config/origin.js';
import { dependencies } from '../config/models.js';
import { must, printable, UsageError } from '../core/errors.js';
import { checkChanges } from '../run/claim/claim.js';
import { changesSince } from '../run/claim/claim_request.js';
import { noView, openView } from '../launch/live/view.js';
import { formatChangedSettings, readRecord, settingsAt, type ChangedSetting, type RunRecord } from '../run/record.js';
import { chosenCheckpoint, parseRunSpec } from '../run/chosen_checkpoint.js';
import { findRun } from '../run/find.js';
import { forkRun } from '../run/claim/fork.js';
import { withMovedPins } from '../run/claim/parents.js';
import { checkRunName, type RunPaths } from '../run/paths.js';
import { namedPrograms, recordedConfig, requireOwn, type RecordedRequest } from '../run/recorded_config.js';
import { printError, printLine } from './shared/output.js';
import { allowedChanges, freshOption, trainOrSubmit } from './run.js';
import {
  expDirOption,
  flag,
  text,
  textOption,
  texts,
  trainingOptions,
  trustOption,
  type Action,
  type Arguments,
} from './shared/verb.js';

const runOption = { type: 'string', describe: 'run_name, or the folder of a run' } as const;
const setOption = { type: 'string', array: true, nargs: 1 } as const;

export const resumeVerb: Action = {
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', runOption)
      .options({
        set: { ...setOption, describe: 'Set an operation key or more iterations, as a.b=VALUE (repeatable)' },
        ...trainingOptions,
        fresh: freshOption,
        trust: trustOption,
        'exp-dir': expDirOption,
      })
      .example('$0 resume sft_s__rl_s', 'Continue from the last checkpoint, without a config')
      .example('$0 resume sft_s__rl_s --set num_iterations=120', 'Continue, with more iterations'),
  run: async (args) => {
    const { source, record, request, how } = recordedRun(args);
    const fresh = flag(args, 'fresh');
    if (fresh) checkRestart(source, record, request);
    const config = recordedConfig(source, record, request);
    showPrograms(config);
    return trainOrSubmit(config, { ...how, fresh });
  },
};

export const forkVerb: Action = {
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', { ...runOption, describe: 'RUN or RUN@CHECKPOINT: an iteration, best, or last (the default)' })
      .options({
        as: { ...textOption('run_name of the new run (required)'), demandOption: true },
        set: { ...setOption, describe: 'Set one key of the new run, as a.b=VALUE (repeatable)' },
        ...trainingOptions,
        trust: trustOption,
        'exp-dir': expDirOption,
      })
      .example(
        '$0 fork sft_s__rl_s@60 --as lower_kl --set algorithm.kl_coeff=1e-4',
        'Continue from iteration 60 with another KL coefficient',
      )
      .example('$0 fork sft_s__rl_s@best --as longer --set num_iterations=200', 'Continue from the best checkpoint'),
  run: async (args) => {
    const { name, checkpoint } = parseRunSpec(text(args, 'run'));
    const { source, record, request, how } = recordedRun(args, name);
    const as = text(args, 'as');
    checkRunName(as);
    // Before anything of another user's run is read.
    if (!request.trust) requireOwn(source, record.settings);
    const { iteration } = chosenCheckpoint(source, checkpoint);
    // Checks the changes first, so that a rejected change leaves no fork behind.
    const { settings, undone, kept } = settingsAt(record, iteration);
    const then = { ...record, settings };
    const forked = recordedConfig(source, then, { ...request, runName: as });
    const parents = dependencies(forked.settings).map(({ run }) => run);
    const changed = changesSince(then, forked.settings, request.allowChanges);
    const changes = withMovedPins(changed, source.baseExpDir, record.parents, parents);
    // A fork is a new run, so it accepts changes of the named settings. Other changes are rejected, as for the run itself.
    const named = changes.map(({ key }) => key).filter((key) => isSet(key, request.sets));
    const config = { ...forked, allowChanges: [...new Set([...named, ...request.allowChanges])] };
    checkChanges(source.runName, changes, config.allowChanges);
    showPrograms(config);
    const target = forkRun(source, iteration, as);
    if (!how.json) {
      printLine(`${as} starts from iteration ${iteration} of ${source.runName}, in ${target.dir}`);
      printLaterChanges(source.runName, undone, kept);
    }
    return trainOrSubmit(config, how);
  },
};

/** The given run, its record, the changes to it, and how to print. */
function recordedRun(args: Arguments, name = text(args, 'run')) {
  const source = findRun(name, text(args, 'exp-dir'));
  const json = flag(args, 'json');
  return {
    source,
    record: must(readRecord(source), `the record of run ${source.runName}`),
    request: { sets: texts(args, 'set'), allowChanges: allowedChanges(args), trust: flag(args, 'trust') },
    how: { json, view: json ? noView : openView(process.stdout) },
  };
}

/** Prints the programs that the recorded settings start to standard error. */
function showPrograms({ settings }: LoadedConfig): void {
  for (const line of namedPrograms(settings)) printError(printable(line));
}

/** Prints which later changes of the source run the fork has and which it lacks. */
function printLaterChanges(name: string, undone: readonly ChangedSetting[], kept: readonly ChangedSetting[]): void {
  const list = (changes: readonly ChangedSetting[]): string =>
    formatChangedSettings(changes)
      .map((line) => `  ${line}`)
      .join('\n');
  if (undone.length > 0) {
    printLine(`Without these later changes of ${name}:\n${list(undone)}`);
  }
  if (kept.length > 0) printLine(`With these later changes of ${name}:\n${list(kept)}`);
}

/** Raises UsageError if the run cannot start over from its recorded settings. */
function checkRestart({ runName }: RunPaths, { fork }: RunRecord, { allowChanges }: RecordedRequest): void {
  if ((allowChanges ?? []).length > 0) {
    throw new UsageError('found --fresh and --allow-changes', {
      next: 'A fresh run accepts any settings. Remove --allow-changes.',
    });
  }
  if (fork !== undefined) {
    throw new UsageError(
      `${runName} is a fork of iteration ${fork.iteration} of ${fork.run} and cannot start from scratch`,
      {
        next: `Fork again: editrl fork ${fork.run}@${fork.iteration} --as NAME`,
      },
    );
  }
}
