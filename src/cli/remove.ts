/** `editrl rm RUN…` and `editrl prune` free disk space. They never delete a run that another run depends on. */
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
import {
  expDirOption,
  flag,
  jsonOption,
  switchOption,
  text,
  texts,
  type Action,
  type Arguments,
} from './shared/verb.js';

const options = {
  'dry-run': switchOption('Only print what would be deleted'),
  'exp-dir': expDirOption,
  json: jsonOption,
} as const;

export const rmVerb: Action = {
  positionals: '<runs..>',
  build: (yargs) =>
    yargs
      .positional('runs', { type: 'string', array: true, describe: 'run_names, or folders of runs' })
      .options(options)
      .example('$0 rm low_kl', 'Delete the folder of a run')
      .example('$0 rm sft_s sft_s__rl_s --dry-run', 'A parent can only be deleted together with its children')
      .epilogue('Runs in use and runs that other runs depend on are not deleted.'),
  run: rm,
};

export const pruneVerb: Action = {
  positionals: '',
  build: (yargs) =>
    yargs.options(options).example('$0 prune --dry-run', 'List runs such as RUN_NAME.old-1 and their size'),
  run: prune,
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
    // A killed deletion leaves a staging folder.
    if (!flag(args, 'dry-run')) sweepStaging(base, REMOVING_PREFIX);
  }
  return remove(found, kept, args);
}

/** Deletes runs, unless --dry-run is set, and prints them. */
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
  for (const run of removed) printLine(`${dry ? 'would delete' : 'deleted'} ${run.dir}`);
  for (const { paths, why } of kept) printLine(`kept ${paths.dir}: ${why}`);
  printLine(runs.length === 0 ? 'Nothing to delete.' : sentence(bytes, dry));
  return 0;
}

/** Drops duplicates. */
function distinct(runs: readonly RunPaths[]): RunPaths[] {
  return [...new Map(runs.map((paths) => [resolve(paths.dir), paths])).values()];
}

function sentence(bytes: number, dry: boolean): string {
  return `${dry ? 'This would free' : 'Freed'} ${bytes.toLocaleString('en')} bytes${bytes < MEGABYTE ? '' : ` (${(bytes / MEGABYTE).toFixed(1)} MB)`}.`;
}

const MEGABYTE = 1e6;
