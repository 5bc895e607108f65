/** editrl runs rm|clean: frees disk space, and never removes what another run starts from. */
import { resolve } from 'node:path';
import { folderActivity } from '../launch/slurm/status.js';
import { findRun, searchFolders } from '../run/find.js';
import { findLeftovers, removeLeftovers, type Leftover } from '../run/leftovers.js';
import type { RunPaths } from '../run/paths.js';
import { bytesFreed, removeRuns, throwIfAnyKept, runsToKeep, type KeptRun } from '../run/remove.js';
import { printJson, printLine } from './output.js';
import { expDirOption, flag, text, texts, type Arguments, type Verb } from './verb.js';

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
    clean: {
      summary: 'remove what no run needs: runs and checkpoints that were set aside, what crashes left half made',
      positionals: '',
      build: (yargs) =>
        yargs.options(options).example('$0 runs clean --dry-run', 'what there is, and what removing it would free'),
      run: clean,
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
  const bytes = bytesFreed(runs.map(({ dir }) => dir));
  const removed = runs.map((paths) => ({ run_name: paths.runName, dir: paths.dir, bytes: bytesFreed([paths.dir]) }));
  const dry = flag(args, 'dry-run');
  if (!dry) {
    for (const base of new Set(runs.map(({ baseExpDir }) => baseExpDir))) {
      const here = runs.filter(({ baseExpDir }) => baseExpDir === base);
      await removeRuns(here, () => folderActivity(base));
    }
  }
  if (flag(args, 'json')) {
    printJson({ removed, bytes, dry_run: dry });
    return 0;
  }
  for (const run of removed) printLine(`${dry ? 'would remove' : 'removed'} ${run.dir}`);
  printLine(sentence(bytes, dry));
  return 0;
}

async function clean(args: Arguments): Promise<number> {
  const dry = flag(args, 'dry-run');
  const found: Leftover[] = [];
  const kept: KeptRun[] = [];
  const folders = searchFolders(text(args, 'exp-dir'));
  for (const base of folders) {
    const here = findLeftovers(base, { underWay: await folderActivity(base) });
    kept.push(...here.kept);
    found.push(...here.found);
  }
  const bytes = bytesFreed(found.map(({ path }) => path));
  if (!dry) await removeLeftovers(found, folderActivity);
  if (flag(args, 'json')) {
    printJson({
      removed: found.map(({ path, what, bytes: size }) => ({ path, what, bytes: size })),
      kept: kept.map(({ paths, why }) => ({ path: paths.dir, why })),
      bytes,
      dry_run: dry,
    });
    return 0;
  }
  for (const { path, what } of found) printLine(`${dry ? 'would remove' : 'removed'} ${path}: ${what}`);
  for (const { paths, why } of kept) printLine(`kept ${paths.dir}: ${why}`);
  printLine(found.length === 0 ? `There is nothing to remove in ${folders.join(' or ')}.` : sentence(bytes, dry));
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
