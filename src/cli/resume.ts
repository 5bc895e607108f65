/** `editrl resume RUN_NAME`: continues a run, or forks it, from its own records. */
import type { LoadedConfig } from '../config/load.js';
import { isSet } from '../config/origin.js';
import { dependencies } from '../config/models.js';
import { must, printable, UsageError } from '../core/errors.js';
import { checkChanges } from '../run/claim/claim.js';
import { changesSince } from '../run/claim/claim_request.js';
import { noView, openView } from '../launch/live/view.js';
import { formatChangedSettings, readRecord, settingsAt, type ChangedSetting, type RunRecord } from '../run/record.js';
import { findRun } from '../run/find.js';
import { forkRun } from '../run/claim/fork.js';
import { withMovedPins } from '../run/claim/parents.js';
import { checkRunName, type RunPaths } from '../run/paths.js';
import { namedPrograms, recordedConfig, type RecordedRequest } from '../run/recorded_config.js';
import { printError, printLine } from './shared/output.js';
import { allowedChanges, trainOrSubmit } from './run.js';
import {
  expDirOption,
  flag,
  numberOption,
  text,
  texts,
  trainingOptions,
  trustOption,
  wholeNumber,
  type Action,
  type Arguments,
} from './shared/verb.js';

export const resumeVerb: Action = {
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', { type: 'string', demandOption: true, describe: 'the run_name, or its folder' })
      .option('set', {
        type: 'string',
        array: true,
        nargs: 1,
        default: [],
        describe:
          'set one key, as a.b=value (JSON, or else a string): where and how the run works, or more iterations; may be repeated',
      })
      .options(trainingOptions)
      .option('from', { ...numberOption, describe: 'fork: the iteration whose checkpoint another run begins with' })
      .option('as', { type: 'string', describe: "fork: the other run's run_name" })
      .option('fresh', {
        type: 'boolean',
        default: false,
        describe: 'begin anew with the settings that it recorded: what lies there is kept beside it, as RUN_NAME.old-1',
      })
      .option('trust', trustOption)
      .option('exp-dir', expDirOption)
      .example('$0 resume sft_s__rl_s', 'from its last whole checkpoint; no config is needed')
      .example('$0 resume sft_s__rl_s --set num_iterations=120', 'and make it longer')
      .example(
        '$0 resume sft_s__rl_s --from 60 --as lower_kl --set algorithm.kl_coeff=1e-4',
        'another run that begins with the checkpoint of iteration 60',
      ),
  run: async (args) => {
    const source = findRun(text(args, 'run'), text(args, 'exp-dir'));
    const record = must(readRecord(source), `the record of run ${source.runName}`);
    const request = { sets: texts(args, 'set'), allowChanges: allowedChanges(args), trust: flag(args, 'trust') };
    const json = flag(args, 'json');
    const how = { json, view: json ? noView : openView(process.stdout) };
    const fork = forkOf(args);
    if (flag(args, 'fresh')) {
      const restarted = restartConfig(source, record, request, fork !== null);
      showPrograms(restarted);
      return trainOrSubmit(restarted, { ...how, fresh: true });
    }
    if (fork === null) {
      const continued = recordedConfig(source, record, request);
      showPrograms(continued);
      return trainOrSubmit(continued, how);
    }
    // The changes are checked first: a refused change must not leave a fork behind.
    const { settings, undone, kept } = settingsAt(record, fork.iteration);
    const then = { ...record, settings };
    const forked = recordedConfig(source, then, { ...request, runName: fork.name });
    const parents = dependencies(forked.settings).map(({ run }) => run);
    const changed = changesSince(then, forked.settings, request.allowChanges);
    const changes = withMovedPins(changed, source.baseExpDir, record.parents, parents);
    // A fork is another run, so it accepts the settings that were given by name. Any other change is refused, as for the run itself.
    const given = changes.map(({ key }) => key).filter((key) => isSet(key, request.sets));
    const config = { ...forked, allowChanges: [...new Set([...given, ...request.allowChanges])] };
    checkChanges(source.runName, changes, config.allowChanges);
    showPrograms(config);
    const target = forkRun(source, fork.iteration, fork.name);
    if (!json) printLine(`${fork.name} begins with iteration ${fork.iteration} of ${source.runName}, in ${target.dir}`);
    if (!json) sayLaterChanges(source.runName, undone, kept);
    return trainOrSubmit(config, how);
  },
};

/** Says on standard error which programs the recorded settings start, before they do. */
function showPrograms({ settings }: LoadedConfig): void {
  for (const line of namedPrograms(settings)) printError(printable(line));
}

/** Says which changes of the source, made after the forked iteration, the fork leaves out, and which it has. */
function sayLaterChanges(name: string, undone: readonly ChangedSetting[], kept: readonly ChangedSetting[]): void {
  const list = (changes: readonly ChangedSetting[]): string =>
    formatChangedSettings(changes)
      .map((line) => `  ${line}`)
      .join('\n');
  if (undone.length > 0) {
    printLine(`It has the settings of that iteration, not these later changes of ${name}:\n${list(undone)}`);
  }
  if (kept.length > 0) printLine(`It has these later changes of ${name}:\n${list(kept)}`);
}

/** The recorded config of a run that starts over. Raises UsageError if the request would make it another run. */
function restartConfig(paths: RunPaths, record: RunRecord, request: RecordedRequest, forks: boolean): LoadedConfig {
  if (forks || (request.allowChanges ?? []).length > 0) {
    throw new UsageError(`found --fresh and ${forks ? '--from' : '--allow-changes'}`, {
      next: 'A run that begins anew takes any settings, and none of its checkpoints: leave out the one or the other.',
    });
  }
  if (record.fork !== undefined) {
    const { run, iteration } = record.fork;
    throw new UsageError(
      `${paths.runName} is a fork: it begins with iteration ${iteration} of ${run}, not with its settings`,
      {
        next: `Fork again: editrl resume ${run} --from ${iteration} --as NAME`,
      },
    );
  }
  return recordedConfig(paths, record, request);
}

function forkOf(args: Arguments): { iteration: number; name: string } | null {
  const [from, name] = [wholeNumber(args, 'from', 0), text(args, 'as')];
  if (from === null && name === '') return null;
  if (from === null || name === '') {
    throw new UsageError('a fork needs both --from ITERATION and --as NAME', {
      next: 'Without either, the run itself is continued from its last whole checkpoint.',
    });
  }
  checkRunName(name);
  return { iteration: from, name };
}
