/** `editrl sync RUN…`: sends the measurements that tracking has not sent yet. */
import { EditrlError, UsageError } from '../core/errors.js';
import { findRun } from '../run/find.js';
import type { RunPaths } from '../run/paths.js';
import { syncRun, type SyncResult } from '../run/track/tracking.js';
import { printError, printJson, printLine } from './shared/output.js';
import { expDirOption, flag, text, texts, type Action } from './shared/verb.js';

export const syncVerb: Action = {
  positionals: '<runs..>',
  build: (yargs) =>
    yargs
      .positional('runs', { type: 'string', array: true, demandOption: true, describe: 'run_names, or their folders' })
      .option('project', {
        type: 'string',
        requiresArg: true,
        describe: 'the W&B project to send to (default: track.wandb.project of the run)',
      })
      .option('entity', { type: 'string', requiresArg: true, describe: 'the W&B user or team that the project is of' })
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .option('exp-dir', expDirOption)
      .example('$0 sync sft_s__rl_s', 'what was measured while W&B was away, or with WANDB_MODE=offline')
      .example('$0 sync sft_s__rl_s --project edits', 'a run whose config names no project'),
  run: async (args) => {
    const [project, entity, expDir] = ['project', 'entity', 'exp-dir'].map((name) => text(args, name));
    if (entity !== '' && project === '') {
      throw new UsageError('found --entity without --project', { next: 'Name the project, too.' });
    }
    const json = flag(args, 'json');
    const found = texts(args, 'runs').map((name) => findRun(name, expDir === '' ? undefined : expDir));
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
        // The others are still sent.
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
