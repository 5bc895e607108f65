/** `editrl sync RUN…`: uploads pending metrics. */
import { EditrlError, UsageError } from '../core/errors.js';
import { findRun } from '../run/find.js';
import type { RunPaths } from '../run/paths.js';
import { syncRun, type SyncResult } from '../run/track/tracking.js';
import { printError, printJson, printLine } from './shared/output.js';
import { expDirOption, flag, jsonOption, text, textOption, texts, type Action } from './shared/verb.js';

export const syncVerb: Action = {
  positionals: '<runs..>',
  build: (yargs) =>
    yargs
      .positional('runs', { type: 'string', array: true, describe: 'run_names, or folders of runs' })
      .option('project', textOption("W&B project (default: the run's track.wandb.project)"))
      .option('entity', textOption('W&B user or team of the project'))
      .option('json', jsonOption)
      .option('exp-dir', expDirOption)
      .example('$0 sync sft_s__rl_s', 'Upload metrics from while W&B was unreachable or offline')
      .example('$0 sync sft_s__rl_s --project edits', 'Choose a W&B project'),
  run: async (args) => {
    const [project, entity, expDir] = ['project', 'entity', 'exp-dir'].map((name) => text(args, name));
    if (entity !== '' && project === '') {
      throw new UsageError('found --entity without --project', { next: 'Add --project NAME.' });
    }
    const json = flag(args, 'json');
    const found = texts(args, 'runs').map((name) => findRun(name, expDir));
    const results: {
      readonly run_name: string;
      readonly problem: string | null;
      readonly synced: SyncResult | null;
    }[] = [];
    let code = 0;
    for (const paths of found) {
      try {
        const synced = await syncRun(paths, {
          wandb: project === '' ? null : { project, entity: entity === '' ? null : entity },
          say: (line) => printError(`${paths.runName}: ${line}`),
        });
        results.push({ run_name: paths.runName, problem: null, synced });
        if (!json) printLine(describe(paths, synced));
      } catch (error) {
        // Continues with the other runs.
        if (!(error instanceof EditrlError) || found.length === 1) throw error;
        results.push({ run_name: paths.runName, problem: error.toText(), synced: null });
        if (!json) printError(`${paths.runName}: ${error.toText()}`);
        code ||= error.exitCode;
      }
    }
    if (json) printJson({ runs: results.map(({ synced, ...one }) => ({ ...one, ...synced })) });
    return code;
  },
};

function describe({ runName }: RunPaths, { wandb, tensorboard, hub }: SyncResult): string {
  const rows = (count: number): string => `${count} row${count === 1 ? '' : 's'}`;
  const done = [
    ...(wandb === null ? [] : [`${rows(wandb.rows)} on W&B, ${wandb.page}`]),
    ...(tensorboard === null ? [] : [`${rows(tensorboard)} for TensorBoard`]),
    ...(hub === null ? [] : [`${hub} published on the Hub`]),
  ];
  return `${runName}: ${done.join('; ')}`;
}
