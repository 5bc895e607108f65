/** editrl data: makes the tiny world's data, packs the user's own pictures, checks datasets, and writes records for other programs. */
import { join } from 'node:path';
import { EditrlError, must, UsageError } from '../core/errors.js';
import {
  type DatasetReport,
  type DatasetUse,
  TEXT_COLUMNS,
  type TextColumns,
  checkDataset,
  findDatalists,
  openCompared,
} from '../data/check.js';
import { describeOverlap, findOverlap, type ComparedSet, type Overlap } from '../data/overlap.js';
import { PICTURED_COLUMNS, type PicturedColumns } from '../data/pictured_edits.js';
import {
  DEFAULT_TINY_EDITS,
  DEFAULT_TINY_IMAGES,
  editData,
  imageData,
  type ImageTokenizerLike,
} from '../tiny/world/dataset.js';
import { largeActions } from '../rewards/terms/format_accuracy.js';
import { targetOf } from '../rewards/terms/ocr/similarity.js';
import { FFMPEG_ADVICE, hasFfmpeg } from '../data/video/ffmpeg.js';
import { tinyClips, tinySigns } from '../tiny/world/settings.js';
import { clipData } from '../tiny/world/clips.js';
import { signData, signWorld } from '../tiny/world/sign_scenes.js';
import { benchAction } from './data_bench.js';
import { packAction } from './data_pack.js';
import { printError, printJson, printLine, styled } from './output.js';
import { flag, numberOption, text, texts, wholeNumber, type Action, type Arguments, type Verb } from './verb.js';

/** The number that configs/lib/tiny.libsonnet asks for, so that a tiny run finds its data already made. */
const LABELLED_EDITS = 800;

/** Opens a trained image tokenizer by its path. Raises CheckpointError. */
export type TokenizerOpener = (path: string) => Promise<ImageTokenizerLike>;

/** Reads a whole-number flag that has a default. */
function count(args: Arguments, name: string, least: number): number {
  return must(wholeNumber(args, name, least), `--${name}`);
}

function makeTiny(openTokenizer: TokenizerOpener | null): Action & { readonly summary: string } {
  return {
    summary: "write the tiny world's images, edits, signs and clips",
    positionals: '',
    build: (yargs) => {
      const { sizes } = DEFAULT_TINY_EDITS;
      const { counts } = tinySigns.parse({});
      const { counts: clips } = tinyClips.parse({});
      return yargs
        .option('root', { type: 'string', describe: 'folder to write to (default: tiny below APP__DATA_DIR or data)' })
        .option('seed', { ...numberOption, default: DEFAULT_TINY_EDITS.seed, describe: 'seed of all scenes' })
        .option('images', { ...numberOption, default: DEFAULT_TINY_IMAGES.count, describe: 'images for the tokenizer' })
        .option('train', { ...numberOption, default: LABELLED_EDITS, describe: 'labelled edits per set' })
        .option('prompts', { ...numberOption, default: sizes.prompts, describe: 'edits without an answer per set' })
        .option('validation', { ...numberOption, default: sizes.validation, describe: 'held-out edits per set' })
        .option('truth', { ...numberOption, default: sizes.truth, describe: "edits with the answer's pixels per set" })
        .option('signs-labelled', {
          ...numberOption,
          default: counts.labelled,
          describe: 'signs for supervised training',
        })
        .option('signs-train', { ...numberOption, default: counts.train, describe: 'signs to learn from rewards on' })
        .option('signs-validation', { ...numberOption, default: counts.validation, describe: 'held-out signs' })
        .option('clips-labelled', {
          ...numberOption,
          default: clips.labelled,
          describe: 'clips for supervised training',
        })
        .option('clips-train', { ...numberOption, default: clips.train, describe: 'clips to learn from rewards on' })
        .option('clips-validation', { ...numberOption, default: clips.validation, describe: 'held-out clips' })
        .option('tokenizer', {
          type: 'string',
          describe: 'trained image tokenizer; without one no edits are written, but the images that train it',
        })
        .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
        .example('$0 data make-tiny', 'images for the tokenizer, signs and clips, below data/tiny');
    },
    run: async (args) => {
      const given = text(args, 'root');
      const root = given === '' ? join(process.env['APP__DATA_DIR'] ?? 'data', 'tiny') : given;
      const seed = count(args, 'seed', 0);
      const tokenizerPath = text(args, 'tokenizer');
      if (tokenizerPath !== '' && openTokenizer === null) {
        throw new UsageError('this build opens no image tokenizer from a path', {
          next: 'Leave out --tokenizer: a tiny run trains its tokenizer and writes the edits itself.',
        });
      }
      await imageData.makeIn(root, { seed, count: count(args, 'images', 1) });
      const counts = {
        labelled: count(args, 'signs-labelled', 1),
        train: count(args, 'signs-train', 1),
        validation: count(args, 'signs-validation', 1),
      };
      await signData.makeIn(root, signWorld(tinySigns.parse({ seed, counts })));
      const clips = hasFfmpeg();
      if (clips) {
        await clipData.makeIn(root, {
          seed,
          sizes: {
            described: 0,
            labelled: count(args, 'clips-labelled', 1),
            train: count(args, 'clips-train', 1),
            validation: count(args, 'clips-validation', 1),
          },
          lists: 1,
        });
      }
      const sizes = {
        train: count(args, 'train', 1),
        prompts: count(args, 'prompts', 1),
        validation: count(args, 'validation', 1),
        truth: count(args, 'truth', 1),
      };
      const withEdits = tokenizerPath !== '' && openTokenizer !== null;
      if (withEdits) await editData(await openTokenizer(tokenizerPath)).makeIn(root, { seed, sizes });
      if (flag(args, 'json')) {
        printJson({ root, images: true, edits: withEdits, signs: true, clips });
      } else {
        const made = ['images', ...(withEdits ? ['edits'] : []), 'signs', ...(clips ? ['clips'] : [])];
        printLine(`${root}: ${made.slice(0, -1).join(', ')} and ${made.at(-1)} are there.`);
        if (!clips) printLine(`  Clips are not: they are written by ffmpeg. ${FFMPEG_ADVICE}`);
        if (!withEdits) {
          printLine('  The edits follow when a tiny run has trained the tokenizer that they are coded with.');
        }
      }
      return 0;
    },
  };
}

const SAMPLES: Record<DatasetReport['kind'], string> = {
  edits: 'edits',
  images: 'images',
  inpainting: 'inpainting samples',
  videos: 'questions about videos',
  pictured: 'edits in rows',
  captioned: 'captioned pictures',
  texts: 'prompts',
};

/** Shows progress on one line of a terminal, which is cleared after the last sample. */
function showProgress(done: number, total: number): void {
  const line = done === total ? '' : `${done} of ${total} questions about videos`;
  process.stderr.write(`\r${line}\u001b[K`);
}

function printReport(report: DatasetReport): void {
  const labelled = ['edits', 'pictured', 'texts'].includes(report.kind) ? `, ${report.labelled} labelled` : '';
  const size = report.kind === 'texts' ? '' : `, size ${report.sizes.join(', ') || 'unknown'}`;
  printLine(`${report.path}: ${report.samples} ${SAMPLES[report.kind]}${labelled}${size}`);
  if (report.remark !== null) printError(`${styled('warning', 'yellow', process.stderr)}: ${report.remark}`);
  for (const problem of report.problems) printError(`editrl: ${problem.toText()}`);
}

/** The columns of rows that may be renamed. */
const COLUMNS = { ...PICTURED_COLUMNS, ...TEXT_COLUMNS };

/** The renamed columns; null if none is renamed. Raises UsageError for a name that is not a column of edits in rows. */
function columnsOf(pairs: readonly string[]): Partial<PicturedColumns & TextColumns> | null {
  if (pairs.length === 0) return null;
  return Object.fromEntries(
    pairs.map((pair) => {
      const [, name, column] = /^([^=]*)=(.+)$/.exec(pair) ?? [];
      if (name !== undefined && Object.hasOwn(COLUMNS, name)) return [name, column];
      const names = Object.keys(COLUMNS).join(', ');
      throw new UsageError(`--columns: found '${pair}'; allowed: NAME=COLUMN, where NAME is one of ${names}`, {
        next: "Say what the config's data.columns says, such as --columns source=before.",
      });
    }),
  );
}

/** All samples are compared with all of the training data. Raises DataError for a dataset that has problems. */
async function overlapOf(
  reports: readonly DatasetReport[],
  trained: readonly string[],
  use: DatasetUse,
): Promise<Overlap> {
  const heldOut = await Promise.all(reports.map((report) => openCompared(report, use)));
  const training: ComparedSet[] = [];
  for (const list of trained) training.push(await openCompared(await checkDataset(list, use), use));
  return findOverlap(heldOut, training, { samples: Infinity, pictures: Infinity });
}

const check: Action & { readonly summary: string } = {
  summary: 'read datasets through and say what is wrong with them',
  positionals: '<paths..>',
  build: (yargs) =>
    yargs
      .positional('paths', {
        type: 'string',
        array: true,
        demandOption: true,
        describe: 'lists of samples, dataset folders, or a folder above several',
      })
      .option('quoted', {
        type: 'boolean',
        default: false,
        describe: 'inpainting prompts have to quote a text, which rewards that read pictures compare with',
      })
      .option('resolution', {
        ...numberOption,
        describe:
          "the side of the squares that inpainting pictures are brought to, a config's data.resolution; as they are where left out",
      })
      .option('media', {
        type: 'string',
        requiresArg: true,
        describe:
          "the folder that paths in questions about videos and in rows of edits begin at, data.train's media; each list's own where left out",
      })
      .option('columns', {
        type: 'string',
        array: true,
        nargs: 1,
        requiresArg: true,
        default: [],
        describe: "NAME=COLUMN: how a column of rows is called, a config's data.columns; once for each",
      })
      .option('min-frames', {
        ...numberOption,
        describe:
          "least frames of a segment whose own sample does not say, a config's data.frames.min; 1 where left out",
      })
      .option('training', {
        type: 'string',
        array: true,
        nargs: 1,
        requiresArg: true,
        default: [],
        describe: 'count the samples that stand in this dataset, too; once for each that is trained on',
      })
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .example('$0 data check held_out.jsonl --training train.jsonl', 'held-out samples that are trained on')
      .example('$0 data check data/tiny', 'every list below data/tiny')
      .example(
        '$0 data check edits.jsonl --columns source=before',
        'edits in rows whose picture stands in column before',
      )
      .example('$0 data check data/prompts/challenging.txt', 'prompts, one on each line')
      .example('$0 data check data/signs --quoted', 'a folder with self_bench.txt, for training with OCR'),
  run: async (args) => {
    const unread: EditrlError[] = [];
    // One dataset that cannot be read does not keep the others from being checked.
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
      printLine(describeOverlap(overlap, count) ?? `none of ${count} samples stands in the training data, too`);
    }
    const hasProblems = reports.some(({ problems }) => problems.length > 0);
    return Math.max(hasProblems ? 1 : 0, ...unread.map(({ exitCode }) => exitCode));
  },
};

/** The verb, with the opener of image tokenizers if there is one. */
export function makeDataVerb(openTokenizer: TokenizerOpener | null): Verb {
  return {
    actions: { 'make-tiny': makeTiny(openTokenizer), pack: packAction, bench: benchAction, check },
  };
}

/** Opens the model folder of an image tokenizer, such as a checkpoint of `tiny_vq`; loaded only when it is asked for. */
const openTokenizer: TokenizerOpener = async (path) => {
  const { loadVisionTokenizer } = await import('../environments/vision_tokens.js');
  return loadVisionTokenizer(path, { provider: 'cpu' });
};

export const dataVerb: Verb = makeDataVerb(openTokenizer);
