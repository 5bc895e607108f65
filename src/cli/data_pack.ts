/** editrl data pack: makes a dataset from the user's own pictures. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { CheckpointError, RunError, UsageError } from '../core/errors.js';
import { mostImagePixels } from '../core/image.js';
import { packDataset, type PackReport, type PictureCodes } from '../data/pack.js';
import type { PictureSize } from '../data/pictures.js';
import { CONFIG_FILE, readConfig } from '../models/files.js';
import { emu3VisionTypes } from '../nets/emu3_vision/config.js';
import { findRun } from '../run/find.js';
import { parentCheckpoint } from '../run/parents.js';
import { readState } from '../run/state.js';
import { printJson, printLine } from './output.js';
import { expDirOption, flag, text, type Action } from './verb.js';

/** Lines between two progress messages. */
const PROGRESS_EVERY = 1000;

export const packAction: Action & { readonly summary: string } = {
  summary: 'make a dataset of your own pictures',
  positionals: '<instructions>',
  build: (yargs) =>
    yargs
      .positional('instructions', {
        type: 'string',
        demandOption: true,
        describe:
          'JSON lines with source (a picture, looked for from the folder of this file) and instruction; optional: edited (a picture), rationale, split',
      })
      .option('out', { type: 'string', demandOption: true, requiresArg: true, describe: 'the folder to make' })
      .option('tokenizer', {
        type: 'string',
        requiresArg: true,
        describe:
          'run or folder of an image tokenizer, in whose codes edits are written; without one the pictures alone, to train one',
      })
      .option('size', {
        type: 'string',
        requiresArg: true,
        describe:
          "scale and crop pictures to this side, or WIDTHxHEIGHT: multiples of the tokenizer's patch; without it they stay as they are, or are scaled as the tokenizer's own processor does",
      })
      .option('exp-dir', expDirOption)
      .option('json', { type: 'boolean', default: false, describe: 'print one JSON document, for machines' })
      .example('$0 data pack own/edits.jsonl --out data/own_pictures --size 48', 'pictures, for an image tokenizer')
      .example('$0 data pack own/edits.jsonl --out data/own --size 48 --tokenizer own_vq', 'edits in its codes'),
  run: async (args) => {
    const size = sizeOf(text(args, 'size'));
    const tokenizer = text(args, 'tokenizer');
    const codes = tokenizer === '' ? null : await openCodes(tokenizerFolder(tokenizer, text(args, 'exp-dir')));
    const json = flag(args, 'json');
    let said = 0;
    try {
      const report = await packDataset({
        instructions: text(args, 'instructions'),
        out: text(args, 'out'),
        size,
        codes,
        onProgress: (done, total) => {
          if (json || done - said < PROGRESS_EVERY || done === total) return;
          printLine(`${done} of ${total} edits`);
          said = done;
        },
      });
      if (json) printJson(report);
      else printReport(report);
      return 0;
    } finally {
      await codes?.dispose();
    }
  },
};

/** Reads `48` or `48x32`; null if nothing is given. Raises UsageError for anything else. */
function sizeOf(given: string): PictureSize | null {
  if (given === '') return null;
  const [, width, height = width] = /^([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?$/.exec(given) ?? [];
  if ((width as string | undefined) === undefined) {
    throw new UsageError(`--size: found ${given}; allowed: pixels, as 48, or WIDTHxHEIGHT, as 64x48`);
  }
  const size = { width: Number(width), height: Number(height) };
  if (size.width * size.height <= mostImagePixels) return size;
  throw new UsageError(`--size: found ${given}; allowed: at most ${mostImagePixels / 1e6} million pixels`);
}

/** The folder of an image tokenizer, given by its path or by the finished run that trained it. */
function tokenizerFolder(given: string, expDir: string): string {
  if (existsSync(join(given, CONFIG_FILE))) return given;
  const paths = findRun(given, expDir);
  const state = readState(paths)?.state ?? 'queued';
  if (state !== 'finished') {
    throw new RunError(`the image tokenizer is ${state}: its codes would still change`, {
      where: paths.dir,
      next: `Finish it first (editrl resume ${paths.runName}), or name the folder of one of its checkpoints.`,
    });
  }
  return parentCheckpoint(paths.baseExpDir, paths.runName, []).dir;
}

/** Opens an image tokenizer; the code that computes is loaded only here. Raises CheckpointError if the folder holds another kind of model. */
async function openCodes(folder: string): Promise<PictureCodes & { dispose(): Promise<void> }> {
  const { codebook_size, patch, model_type } = readConfig<Readonly<Record<string, unknown>>>(folder);
  const isOwn = typeof codebook_size === 'number' && typeof patch === 'number';
  if (!isOwn && !emu3VisionTypes.includes(String(model_type))) {
    throw new CheckpointError('the model is no image tokenizer', {
      where: folder,
      next: 'Name a run of the task image_tokenizer, such as one like configs/tiny_vq.jsonnet, or the folder of BAAI/Emu3-VisionTokenizer.',
    });
  }
  const { loadVisionTokenizer } = await import('../environments/vision_tokens.js');
  const { jointVocabularyJson, THINKING_WORDS } = await import('../policies/tokens/emu3.js');
  const tokenizer = loadVisionTokenizer(folder, { provider: 'cpu' });
  return {
    id: tokenizer.id,
    patch: tokenizer.config.patch,
    sizing: tokenizer.sizing,
    encode: (images) => tokenizer.encode(images),
    vocabulary: (words) => jointVocabularyJson([...THINKING_WORDS, ...words], tokenizer.config.codebook_size),
    dispose: () => tokenizer.dispose(),
  };
}

function printReport({ out, kind, splits, words, was_there }: PackReport): void {
  printLine(was_there ? `${out}: the same dataset was there already.` : `${out}:`);
  for (const { list, samples, labelled } of splits) {
    printLine(`  ${list}: ${samples} ${kind}${kind === 'edits' ? `, ${labelled} labelled` : ''}`);
  }
  if (words !== null) printLine(`  ${join(out, 'tokenizer.json')}: the vocabulary, with ${words} words of these edits`);
}
