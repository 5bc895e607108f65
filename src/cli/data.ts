/** `editrl data pack|check|bench`: makes datasets of your own images or of benchmarks, and checks datasets. */
import { join, resolve } from 'node:path';
import { existsSync } from 'node:fs';
import { EditrlError, UsageError, CheckpointError, RunError } from '../core/errors.js';
import {
  checkDataset,
  findDatalists,
  openCompared,
  TEXT_COLUMNS,
  type DatasetReport,
  type DatasetUse,
  type TextColumns,
} from '../data/check.js';
import { describeOverlap, findOverlap, type ComparedSet, type Overlap } from '../data/overlap.js';
import { IMAGE_EDIT_COLUMNS, type ImageEditColumns } from '../data/image_edits.js';
import { largeActions } from '../rewards/terms/format_accuracy.js';
import { targetOf } from '../rewards/terms/ocr/similarity.js';
import { printError, printJson, printLine, styled } from './shared/output.js';
import {
  expDirOption,
  flag,
  jsonOption,
  listOption,
  numberOption,
  switchOption,
  text,
  textOption,
  texts,
  wholeNumber,
  type Action,
} from './shared/verb.js';
import { mostImagePixels } from '../core/images/image.js';
import { packDataset, type PackReport, type ImageCodes } from '../data/pack.js';
import type { ImageSize } from '../data/image_files.js';
import { CONFIG_FILE, readConfig } from '../models/files.js';
import { emu3VisionTypes } from '../compute/nets/emu3_vision/config.js';
import { findRun } from '../run/find.js';
import { parentCheckpoint } from '../run/claim/parents.js';
import { readState } from '../run/state.js';
import { writeBenchmark } from '../data/benchmarks.js';

/** The word for one sample, and for several. */
const SAMPLES: Record<DatasetReport['kind'], readonly [one: string, several: string]> = {
  edits: ['edit', 'edits'],
  images: ['image', 'images'],
  inpainting: ['inpainting sample', 'inpainting samples'],
  videos: ['question about a video', 'questions about videos'],
  pictured: ['edit in rows', 'edits in rows'],
  captioned: ['captioned image', 'captioned images'],
  texts: ['prompt', 'prompts'],
};

function countOf(samples: number, kind: DatasetReport['kind']): string {
  return `${samples} ${SAMPLES[kind][samples === 1 ? 0 : 1]}`;
}

/** Shows progress on one terminal line and clears it at the end. */
function showProgress(done: number, total: number): void {
  const line = done === total ? '' : `${done} of ${total} questions about videos`;
  process.stderr.write(`\r${line}\u001b[K`);
}

function printReport(report: DatasetReport): void {
  const labeled = ['edits', 'pictured', 'texts'].includes(report.kind) ? `, ${report.labelled} labeled` : '';
  const size = report.kind === 'texts' ? '' : `, size ${report.sizes.join(', ') || 'unknown'}`;
  printLine(`${report.path}: ${countOf(report.samples, report.kind)}${labeled}${size}`);
  if (report.remark !== null) printError(`${styled('warning', 'yellow', process.stderr)}: ${report.remark}`);
  for (const problem of report.problems) printError(`editrl: ${problem.toText()}`);
}

/** The columns that can be renamed. */
const COLUMNS = { ...IMAGE_EDIT_COLUMNS, ...TEXT_COLUMNS };

/** The renamed columns, or null if there are none. Raises UsageError for an unknown column name. */
function columnsOf(pairs: readonly string[]): Partial<ImageEditColumns & TextColumns> | null {
  if (pairs.length === 0) return null;
  return Object.fromEntries(
    pairs.map((pair) => {
      const [, name, column] = /^([^=]*)=(.+)$/.exec(pair) ?? [];
      if (name !== undefined && Object.hasOwn(COLUMNS, name)) return [name, column];
      const names = Object.keys(COLUMNS).join(', ');
      throw new UsageError(`--columns: found '${pair}'; allowed: NAME=COLUMN, where NAME is one of ${names}`, {
        next: "Use the names in the config's data.columns, such as --columns source=before.",
      });
    }),
  );
}

/** Compares all samples with all of the training data. Raises DataError for an invalid dataset. */
async function overlapOf(
  reports: readonly DatasetReport[],
  trained: readonly string[],
  use: DatasetUse,
): Promise<Overlap> {
  const heldOut = await Promise.all(reports.map((report) => openCompared(report, use)));
  const training: ComparedSet[] = [];
  for (const list of trained) training.push(await openCompared(await checkDataset(list, use), use));
  return findOverlap(heldOut, training, { samples: Infinity, images: Infinity });
}

export const checkDataVerb: Action = {
  positionals: '<paths..>',
  build: (yargs) =>
    yargs
      .positional('paths', {
        type: 'string',
        array: true,
        describe: 'Datasets: sample lists, folders, or a folder with several datasets',
      })
      .option(
        'quoted',
        switchOption('Require inpainting prompts to quote a text, for rewards that read text in images'),
      )
      .option('resolution', numberOption('Side of resized inpainting images, like data.resolution'))
      .option('media', textOption('Folder of the videos and images in a list (default: the folder of the list)'))
      .option('columns', listOption('Rename a column, as NAME=COLUMN, like data.columns (repeatable)'))
      .option('min-frames', numberOption('Minimum frames of a video segment, like data.frames.min (default: 1)'))
      .option('training', listOption('Count samples that are also in this training dataset (repeatable)'))
      .option('json', jsonOption)
      .example(
        '$0 data check held_out.jsonl --training train.jsonl',
        'Count held-out samples that are also in the training data',
      )
      .example('$0 data check data/tiny', 'Every list in data/tiny')
      .example(
        '$0 data check edits.jsonl --columns source=before',
        'Edits in rows, with the source image in column before',
      )
      .example('$0 data check data/prompts/challenging.txt', 'Prompts, one per line')
      .example('$0 data check data/signs --quoted', 'A folder with self_bench.txt, for OCR rewards'),
  run: async (args) => {
    const unread: EditrlError[] = [];
    // Continues after an unreadable dataset.
    const orReport = async <T>(look: () => T | Promise<T>): Promise<T | null> => {
      try {
        return await look();
      } catch (error) {
        if (!(error instanceof EditrlError)) throw error;
        unread.push(error);
        if (!flag(args, 'json')) printError(`editrl: ${error.toText()}`);
        return null;
      }
    };
    const lists: string[] = [];
    for (const path of texts(args, 'paths')) lists.push(...((await orReport(() => findDatalists(path))) ?? []));
    const trained = texts(args, 'training').flatMap(findDatalists);
    const reports: DatasetReport[] = [];
    const media = text(args, 'media');
    const minFrames = wholeNumber(args, 'min-frames', 1);
    const resolution = wholeNumber(args, 'resolution', 1);
    const columns = columnsOf(texts(args, 'columns'));
    const use: DatasetUse = {
      ...(columns === null ? {} : { columns }),
      ...(flag(args, 'quoted') ? { checkPrompt: targetOf } : {}),
      ...(resolution === null ? {} : { resolution }),
      ...(media === '' ? {} : { media }),
      ...(minFrames === null ? {} : { minFrames }),
      suspects: largeActions,
      ...(process.stderr.isTTY ? { onProgress: showProgress } : {}),
    };
    for (const list of lists) {
      const report = await orReport(() => checkDataset(list, use));
      if (report === null) continue;
      reports.push(report);
      if (!flag(args, 'json')) printReport(report);
    }
    const overlap = trained.length === 0 ? null : await overlapOf(reports, trained, use);
    const count = reports.reduce((sum, { samples }) => sum + samples, 0);
    if (flag(args, 'json')) {
      printJson([
        ...reports.map((report, i) => ({
          ...report,
          problems: report.problems.map((problem) => problem.toText()),
          ...(overlap === null ? {} : { in_training: overlap.found[i] }),
        })),
        ...unread.map((error) => ({ path: error.where ?? null, problems: [error.toText()] })),
      ]);
    } else if (overlap !== null) {
      printLine(describeOverlap(overlap, count) ?? `none of the ${count} samples are in the training data`);
    }
    const hasProblems = reports.some(({ problems }) => problems.length > 0);
    return Math.max(hasProblems ? 1 : 0, ...unread.map(({ exitCode }) => exitCode));
  },
};

/** Number of lines between progress messages. */
const PROGRESS_EVERY = 1000;

export const packVerb: Action = {
  positionals: '<instructions>',
  build: (yargs) =>
    yargs
      .positional('instructions', {
        type: 'string',
        describe:
          'JSON lines with source (image path relative to this file) and instruction. Optional: edited, rationale, split',
      })
      .option('out', { ...textOption('Folder to create (required)'), demandOption: true })
      .option(
        'tokenizer',
        textOption(
          'Run or folder of an image tokenizer that encodes the edits (default: store images, to train a tokenizer)',
        ),
      )
      .option(
        'size',
        textOption(
          "Resize and crop to this side, or WIDTHxHEIGHT, in multiples of the tokenizer's patch (default: unchanged, or as the tokenizer's processor resizes)",
        ),
      )
      .option('exp-dir', expDirOption)
      .option('json', jsonOption)
      .example('$0 data pack own/edits.jsonl --out data/own_pictures --size 48', 'Images, to train an image tokenizer')
      .example('$0 data pack own/edits.jsonl --out data/own --size 48 --tokenizer own_vq', 'Edits, in its codes'),
  run: async (args) => {
    const size = sizeOf(text(args, 'size'));
    const tokenizer = text(args, 'tokenizer');
    const codes = tokenizer === '' ? null : await openCodes(tokenizerFolder(tokenizer, text(args, 'exp-dir')));
    const json = flag(args, 'json');
    let printed = 0;
    try {
      const report = await packDataset({
        instructions: text(args, 'instructions'),
        out: text(args, 'out'),
        size,
        codes,
        onProgress: (done, total) => {
          if (json || done - printed < PROGRESS_EVERY || done === total) return;
          printLine(`${done} of ${total} edits`);
          printed = done;
        },
      });
      if (json) printJson(report);
      else printPacked(report);
      return 0;
    } finally {
      await codes?.dispose();
    }
  },
};

/** Parses `48` or `48x32`. Null if the flag is absent. Raises UsageError for anything else. */
function sizeOf(given: string): ImageSize | null {
  if (given === '') return null;
  const [, width, height = width] = /^([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?$/.exec(given) ?? [];
  if ((width as string | undefined) === undefined) {
    throw new UsageError(`--size: found ${given}; allowed: pixels, such as 48, or WIDTHxHEIGHT, such as 64x48`);
  }
  const size = { width: Number(width), height: Number(height) };
  if (size.width * size.height <= mostImagePixels) return size;
  throw new UsageError(`--size: found ${given}; allowed: at most ${mostImagePixels / 1e6} million pixels`);
}

/** The folder of an image tokenizer, from a path or from the finished run that trained it. */
function tokenizerFolder(given: string, expDir: string): string {
  if (existsSync(join(given, CONFIG_FILE))) return given;
  const paths = findRun(given, expDir);
  const state = readState(paths)?.state ?? 'queued';
  if (state !== 'finished') {
    throw new RunError(`the image tokenizer is ${state}, so its codes may still change`, {
      where: paths.dir,
      next: `Finish it first (editrl resume ${paths.runName}), or name the folder of one of its checkpoints.`,
    });
  }
  return parentCheckpoint(paths.baseExpDir, paths.runName, []).dir;
}

/** Opens an image tokenizer. Raises CheckpointError if the folder contains another kind of model. */
async function openCodes(folder: string): Promise<ImageCodes & { dispose(): Promise<void> }> {
  const { codebook_size, patch, model_type } = readConfig<Readonly<Record<string, unknown>>>(folder);
  const isOwn = typeof codebook_size === 'number' && typeof patch === 'number';
  if (!isOwn && !emu3VisionTypes.includes(String(model_type))) {
    throw new CheckpointError('the model is not an image tokenizer', {
      where: folder,
      next: 'Name a run of task image_tokenizer, for example of configs/tiny_vq.jsonnet, or the folder of BAAI/Emu3-VisionTokenizer.',
    });
  }
  const { loadVisionTokenizer } = await import('../train/environments/vision_tokens.js');
  const { imageCodes } = await import('../train/policies/tokens/image_codes.js');
  const tokenizer = loadVisionTokenizer(folder, { provider: 'cpu' });
  return { ...imageCodes(tokenizer), dispose: () => tokenizer.dispose() };
}

function printPacked({ out, kind, splits, words, was_there }: PackReport): void {
  printLine(was_there ? `${out}: the same dataset already exists.` : `${out}:`);
  for (const { list, samples, labelled } of splits) {
    printLine(`  ${list}: ${countOf(samples, kind)}${kind === 'edits' ? `, ${labelled} labeled` : ''}`);
  }
  if (words !== null) printLine(`  ${join(out, 'tokenizer.json')}: the vocabulary, with ${words} words of these edits`);
}

export const benchVerb: Action = {
  positionals: '<lists..>',
  build: (yargs) =>
    yargs
      .positional('lists', {
        type: 'string',
        array: true,
        describe:
          "Parquet files of GEdit-Bench or GEditBench v2, or ImgEdit's basic_edit.json or UGE_edit.json, RISEBench's data_total.json, or KRIS-Bench's */annotation.json",
      })
      .option('pictures', textOption('Folder of the images in a list of ImgEdit or RISEBench'))
      .option('language', {
        choices: ['en', 'cn', 'all'] as const,
        default: 'en',
        describe: 'Language of the GEdit-Bench instructions',
      })
      .option('out', { ...textOption('Folder to create (required)'), demandOption: true })
      .option('json', jsonOption)
      .example('$0 data bench GEdit-Bench/data/*.parquet --out gedit', 'Then: editrl evaluate RUN --data gedit')
      .example('$0 data bench basic_edit.json --pictures Benchmark/singleturn --out imgedit', 'One list per edit type'),
  run: async (args) => {
    const lists = texts(args, 'lists');
    const other = lists.find((list) => !/\.(parquet|json)$/.test(list));
    if (other !== undefined) {
      throw new UsageError(
        `found ${other}; allowed: .parquet files of GEdit-Bench or GEditBench v2, or .json lists of ImgEdit, RISEBench or KRIS-Bench`,
      );
    }
    const language = text(args, 'language');
    const pictures = text(args, 'pictures');
    const out = text(args, 'out');
    const types = await writeBenchmark({
      lists,
      images: pictures === '' ? null : pictures,
      language: language === 'all' ? null : language,
      out,
    });
    if (flag(args, 'json')) printJson({ out: resolve(out), types });
    else {
      const counts = Object.entries(types).map(([type, count]) => `${type} ${count}`);
      const total = Object.values(types).reduce((sum, count) => sum + count, 0);
      printLine(`${out}: ${countOf(total, 'edits')} (${counts.join(', ')})`);
    }
    return 0;
  },
};
