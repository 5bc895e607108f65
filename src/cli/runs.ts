/** editrl runs rm|prune: frees disk space, and never removes what another run starts from. */
import { resolve } from 'node:path';
import { sweepStaging } from '../core/files.js';
import { folderActivity } from '../launch/slurm/status.js';
import { findRun, searchFolders } from '../run/find.js';
import type { RunPaths } from '../run/paths.js';
import {
  bytesFreed,
  findSetAside,
  removeRuns,
  REMOVING_PREFIX,
  runsToKeep,
  throwIfAnyKept,
  type KeptRun,
} from '../run/remove.js';
import { printJson, printLine } from './shared/output.js';
import { expDirOption, flag, text, texts, type Arguments, type Verb } from './shared/verb.js';

const options = {
  'dry-run': { type: 'boolean', default: false, describe: 'say what would go, and remove nothing' },
  'exp-dir': expDirOption,
  json: { type: 'boolean', default: false, describe: 'print one JSON document, for machines' },
} as const;

export const runsVerb: Verb = {
  actions: {
    rm: {
      summary: 'remove runs for good; none that is in use, and none that another run starts from',
      positionals: '<runs..>',
      build: (yargs) =>
        yargs
          .positional('runs', {
            type: 'string',
            array: true,
            demandOption: true,
            describe: 'run_names, or folders of runs',
          })
          .options(options)
          .example('$0 runs rm low_kl', 'its folder, with everything in it')
          .example(
            '$0 runs rm sft_s sft_s__rl_s --dry-run',
            'what that would free: a start goes with those that need it',
          ),
      run: rm,
    },
    prune: {
      summary: 'remove runs that were set aside, as RUN_NAME.old-1, and that no run starts from',
      positionals: '',
      build: (yargs) =>
        yargs.options(options).example('$0 runs prune --dry-run', 'which there are, and what removing them would free'),
      run: prune,
    },
  },
};

async function rm(args: Arguments): Promise<number> {
  const runs = distinct(texts(args, 'runs').map((name) => findRun(name, text(args, 'exp-dir'))));
  const kept: KeptRun[] = [];
  for (const base of new Set(runs.map(({ baseExpDir }) => baseExpDir))) {
    const here = runs.filter(({ baseExpDir }) => baseExpDir === base);
    kept.push(...runsToKeep(here, { underWay: await folderActivity(base) }));
  }
  throwIfAnyKept(kept);
  return remove(runs, [], args);
}

async function prune(args: Arguments): Promise<number> {
  const found: RunPaths[] = [];
  const kept: KeptRun[] = [];
  const folders = searchFolders(text(args, 'exp-dir'));
  for (const base of folders) {
    const here = findSetAside(base, { underWay: await folderActivity(base) });
    found.push(...here.unneeded);
    kept.push(...here.kept);
    // A removal that was killed left what it had moved away.
    if (!flag(args, 'dry-run')) sweepStaging(base, REMOVING_PREFIX);
  }
  return remove(found, kept, args);
}

/** Removes runs, unless the flags say --dry-run, and prints what was or would be removed. */
async function remove(runs: readonly RunPaths[], kept: readonly KeptRun[], args: Arguments): Promise<number> {
  const dry = flag(args, 'dry-run');
  const bytes = bytesFreed(runs.map(({ dir }) => dir));
  const removed = runs.map((paths) => ({ run_name: paths.runName, dir: paths.dir, bytes: bytesFreed([paths.dir]) }));
  if (!dry) {
    for (const base of new Set(runs.map(({ baseExpDir }) => baseExpDir))) {
      const here = runs.filter(({ baseExpDir }) => baseExpDir === base);
      await removeRuns(here, () => folderActivity(base));
    }
  }
  if (flag(args, 'json')) {
    const stay = kept.map(({ paths, why }) => ({ run_name: paths.runName, dir: paths.dir, why }));
    printJson({ removed, kept: stay, bytes, dry_run: dry });
    return 0;
  }
  for (const run of removed) printLine(`${dry ? 'would remove' : 'removed'} ${run.dir}`);
  for (const { paths, why } of kept) printLine(`kept ${paths.dir}: ${why}`);
  printLine(runs.length === 0 ? 'There is nothing to remove.' : sentence(bytes, dry));
  return 0;
}

/** Drops duplicates, so that a run that is named twice is removed once. */
function distinct(runs: readonly RunPaths[]): RunPaths[] {
  return [...new Map(runs.map((paths) => [resolve(paths.dir), paths])).values()];
}

function sentence(bytes: number, dry: boolean): string {
  return `${dry ? 'That would free' : 'That freed'} ${bytes.toLocaleString('en')} bytes${bytes < MEGABYTE ? '' : ` (${(bytes / MEGABYTE).toFixed(1)} MB)`}.`;
}

const MEGABYTE = 1e6;
