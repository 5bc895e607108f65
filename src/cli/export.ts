/** `editrl export RUN`: writes a run's model in a format that other programs can load. */
import { existsSync, mkdirSync, readdirSync, renameSync, rmdirSync, rmSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { EditrlError, UsageError } from '../core/errors.js';
import { diskError, stagingFolder, sweepStaging } from '../core/files.js';
import type { WholeCheckpoint } from '../run/checkpoints.js';
import { chosenCheckpoint, parseRunSpec } from '../run/chosen_checkpoint.js';
import { findRun } from '../run/find.js';
import type { ExportedDtype, ExportedFormat } from '../models/adapters/export.js';
import type { RunPaths } from '../run/paths.js';
import { printError, printJson, printLine } from './shared/output.js';
import {
  expDirOption,
  flag,
  jsonOption,
  switchOption,
  text,
  textOption,
  type Action,
  type Arguments,
} from './shared/verb.js';

const STAGING = '.exporting-';

export const exportVerb: Action = {
  positionals: '<run>',
  build: (yargs) =>
    yargs
      .positional('run', {
        type: 'string',
        describe: 'RUN or RUN@CHECKPOINT: an iteration, best, or last (the default)',
      })
      .option('out', textOption('New or empty folder to write'))
      .option('hub', textOption('Publish to this Hugging Face Hub repository (OWNER/NAME), with a model card'))
      .option('branch', textOption('Branch on the Hub (default: main)'))
      .option('public', switchOption('Make a new repository public'))
      .option('format', {
        choices: ['adapter', 'merged'] as const,
        describe:
          'adapter: only the adapter, for peft or diffusers. merged: the whole model, for transformers or diffusers (default: adapter if the run trains one)',
      })
      .option('dtype', {
        choices: ['float32', 'bfloat16', 'float16'] as const,
        describe: 'Number format of merged weights (default: float32, as trained)',
      })
      .option('json', jsonOption)
      .option('exp-dir', expDirOption)
      .example('$0 export text_plain --out exported', 'The last checkpoint')
      .example('$0 export text_plain@best --out exported', 'The best checkpoint by held-out evaluations')
      .example('$0 export text_plain --format merged --dtype bfloat16 --out exported', 'For transformers or vLLM')
      .example('$0 export text_plain --hub me/text_plain', 'Publish to the Hub with HF_TOKEN'),
  run: async (args) => {
    const expDir = text(args, 'exp-dir');
    const named = parseRunSpec(text(args, 'run'));
    const paths = findRun(named.name, expDir);
    const checkpoint = chosenCheckpoint(paths, named.checkpoint);
    if (text(args, 'hub') !== '') return publish(args, paths, checkpoint);
    if (text(args, 'out') === '') {
      throw new UsageError('missing --out or --hub', { next: 'Add --out FOLDER, or --hub OWNER/NAME.' });
    }
    const [{ holdsAdapter }, exporting, { writeCard }] = await Promise.all([
      import('../models/adapters/files.js'),
      import('../models/adapters/export.js'),
      import('../run/track/card/card.js'),
    ]);
    const format = (text(args, 'format') ||
      (holdsAdapter(checkpoint.dir)
        ? 'adapter'
        : (exporting.formatOf(checkpoint.dir) ?? 'checkpoint'))) as ExportedFormat;
    const dtypeName = text(args, 'dtype');
    if (format !== 'merged' && dtypeName !== '') {
      const found = { adapter: 'an adapter', checkpoint: 'a model that is not a language model' }[format];
      throw new UsageError(`--dtype does not apply to ${found}`, {
        next: format === 'adapter' ? 'Remove --dtype, or add --format merged.' : 'Remove --dtype.',
      });
    }
    const dtype = (dtypeName || 'float32') as ExportedDtype;
    warnOfRounding(dtype);
    const out = resolve(text(args, 'out'));
    const json = flag(args, 'json');
    const { iteration } = checkpoint;
    if (!json) for (const problem of checkpoint.problems) printError(`warning: checkpoint skipped: ${problem}`);
    inFolder(out, (folder) => {
      exporting.exportWriters[format](checkpoint.dir, folder, dtype);
      writeCard(folder, { paths, checkpoint: checkpoint.dir, iteration, format, place: 'this folder' });
    });
    const files = readdirSync(out).sort();
    const bytes = files.reduce((sum, name) => sum + statSync(join(out, name)).size, 0);
    if (json) {
      const written = format === 'merged' ? dtype : null;
      printJson({ run_name: paths.runName, iteration, format, dtype: written, out, files, bytes });
    } else {
      printLine(`${paths.runName}, iteration ${iteration}, as ${format} in ${out}: ${files.join(', ')}`);
    }
    return 0;
  },
};

function warnOfRounding(dtype: ExportedDtype): void {
  if (dtype === 'float32') return;
  printError(`warning: ${dtype} rounds the weights, so the exported model's answers differ from the run's`);
}

/** `--hub`: publishes the model as a commit in a Hub repository. */
async function publish(args: Arguments, paths: RunPaths, checkpoint: WholeCheckpoint): Promise<number> {
  if (text(args, 'out') !== '') {
    throw new UsageError('found --out and --hub', { next: 'Export twice: once to a folder, once to the Hub.' });
  }
  const [{ MAIN, publishCheckpoint }, { hubEnvironment }] = await Promise.all([
    import('../run/track/hub/publish.js'),
    import('../models/hub/cache.js'),
  ]);
  const { iteration, dir } = checkpoint;
  const dtype = (text(args, 'dtype') || 'float32') as ExportedDtype;
  warnOfRounding(dtype);
  const published = await publishCheckpoint(
    {
      paths,
      checkpoint: dir,
      iteration,
      format: (text(args, 'format') || null) as 'adapter' | 'merged' | null,
      dtype,
      repository: text(args, 'hub'),
      branch: text(args, 'branch') || MAIN,
      private: !flag(args, 'public'),
    },
    hubEnvironment(),
  );
  const { repository, commit, url, format } = published;
  if (flag(args, 'json')) printJson({ run_name: paths.runName, iteration, format, repository, commit, url });
  else printLine(`${paths.runName}, iteration ${iteration}, as ${format}: ${url}`);
  return 0;
}

/** Writes a temporary folder and renames it, so the folder is complete or missing. Raises UsageError if it exists and is not empty. */
function inFolder(out: string, write: (folder: string) => void): void {
  const isFolder = existsSync(out) && statSync(out).isDirectory();
  if (existsSync(out) && (!isFolder || readdirSync(out).length > 0)) {
    throw new UsageError(`--out: ${out} ${isFolder ? 'is not empty' : 'is a file'}`, {
      next: 'Name another folder, or delete this one.',
    });
  }
  const parent = dirname(out);
  const folder = stagingFolder(parent, STAGING);
  try {
    mkdirSync(parent, { recursive: true });
    sweepStaging(parent, STAGING);
    mkdirSync(folder);
    write(folder);
    if (isFolder) rmdirSync(out);
    renameSync(folder, out);
  } catch (cause) {
    rmSync(folder, { recursive: true, force: true });
    throw cause instanceof EditrlError ? cause : diskError(out, cause);
  }
}
