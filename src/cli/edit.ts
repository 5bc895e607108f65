/** `editrl edit RUN IMAGE INSTRUCTION`: applies a trained image editor. */
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { UsageError } from '../core/errors.js';
import { diskError } from '../core/files.js';
import type { EditorCall } from '../launch/edit.js';
import { noView, openView } from '../launch/live/view.js';
import { printError, printJson, printLine, printWarnings } from './shared/output.js';
import { abortOnSignals, INTERRUPTED } from './shared/signals.js';
import {
  expDirOption,
  flag,
  jsonOption,
  numberOption,
  text,
  textOption,
  trustOption,
  wholeNumber,
  type Action,
  type Arguments,
} from './shared/verb.js';

/** Maximum number of edits per call. */
const MAX_SAMPLES = 64;

export const editVerb: Action = {
  positionals: '<run> <image> <instruction>',
  build: (yargs) =>
    yargs
      .positional('run', { type: 'string', describe: 'Run: RUN, RUN@CHECKPOINT or its folder' })
      .positional('image', { type: 'string', describe: 'PNG, JPEG or WebP file' })
      .positional('instruction', { type: 'string', describe: 'What to change' })
      .option(
        'samples',
        numberOption('Sample this many edits and also write a grid of them (default: the most likely edit)'),
      )
      .option('seed', numberOption('Seed of the samples (default: 0)'))
      .option('out', textOption('PNG file to write (default: IMAGE_edited.png)'))
      .option('trust', trustOption)
      .option('exp-dir', expDirOption)
      .option('json', jsonOption)
      .example('$0 edit quickstart scene.png "make the circle red"', 'Write scene_edited.png')
      .example('$0 edit quickstart@best scene.png "add a square" --samples 4', 'Write four edits and a grid'),
  run: async (args) => {
    const image = resolve(text(args, 'image'));
    if (!existsSync(image)) throw new UsageError(`${text(args, 'image')}: no such image`);
    if (text(args, 'instruction').trim() === '') throw new UsageError('found an empty instruction; allowed: words');
    const out = text(args, 'out') || `${basename(image, extname(image))}_edited.png`;
    if (extname(out) !== '.png') throw new UsageError(`--out: found ${out}; allowed: a name that ends in .png`);
    const samples = wholeNumber(args, 'samples', 1, MAX_SAMPLES);
    const folder = mkdtempSync(join(tmpdir(), 'editrl-edit-'));
    try {
      const edits = await editsOf(args, { image, instruction: text(args, 'instruction'), count: samples ?? 1, folder });
      if (edits === null) return INTERRUPTED;
      const files = await write(out, edits, samples !== null);
      if (flag(args, 'json')) {
        printJson({ run: text(args, 'run'), image, instruction: text(args, 'instruction'), ...files });
      } else [files.grid, ...files.edited].forEach((file) => file !== null && printLine(file));
      const failed = files.edited.filter((file) => file === null).length;
      if (failed > 0) printWarnings([`${failed} of ${edits.length} answers are not images`]);
      return failed === edits.length ? 1 : 0;
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  },
};

/** PNG files of the answers. Null for an answer that is not an image, and null as a whole if the user stopped the command. */
async function editsOf(
  args: Arguments,
  edit: Pick<EditorCall, 'image' | 'instruction' | 'count' | 'folder'>,
): Promise<(Uint8Array | null)[] | null> {
  const [{ findRun }, { parseRunSpec }, { applyEditor }, { Launcher }] = await Promise.all([
    import('../run/find.js'),
    import('../run/chosen_checkpoint.js'),
    import('../launch/edit.js'),
    import('../launch/launcher.js'),
  ]);
  const { name, checkpoint } = parseRunSpec(text(args, 'run'));
  const view = flag(args, 'json') ? noView : openView(process.stderr);
  const [stop] = abortOnSignals(1, () => printError('stopping'), view);
  const launcher = new Launcher({ view, command: process.argv.slice(2), stop, kill: stop });
  view.busy(`editing ${edit.image}`);
  try {
    return await applyEditor(launcher, findRun(name, text(args, 'exp-dir')), {
      ...edit,
      checkpoint,
      sampled: args['samples'] !== undefined,
      seed: wholeNumber(args, 'seed', 0) ?? 0,
      trust: flag(args, 'trust'),
    });
  } finally {
    view.end();
    await launcher.close();
  }
}

/** Writes one file per edit, numbered if sampled, and the grid. */
async function write(
  out: string,
  edits: readonly (Uint8Array | null)[],
  numbered: boolean,
): Promise<{ readonly edited: readonly (string | null)[]; readonly grid: string | null }> {
  const name = (part: string): string => out.replace(/\.png$/, `${part}.png`);
  const files = edits.map((png, i) => (png === null ? null : { path: numbered ? name(`_${i + 1}`) : out, png }));
  const images = edits.filter((png) => png !== null);
  const grid = numbered && images.length > 0 ? { path: out, png: await gridOf(images) } : null;
  for (const file of [grid, ...files]) {
    if (file === null) continue;
    try {
      mkdirSync(dirname(file.path), { recursive: true });
      writeFileSync(file.path, file.png);
    } catch (cause) {
      throw diskError(file.path, cause);
    }
  }
  return { edited: files.map((file) => file?.path ?? null), grid: grid?.path ?? null };
}

/** Arranges the images in a nearly square grid with margins. */
async function gridOf(images: readonly Uint8Array[]): Promise<Uint8Array> {
  const { default: sharp } = await import('sharp');
  const sizes = await Promise.all(images.map((png) => sharp(png).metadata()));
  const [width, height] = [Math.max(...sizes.map((one) => one.width)), Math.max(...sizes.map((one) => one.height))];
  const columns = Math.ceil(Math.sqrt(images.length));
  const margin = Math.max(2, Math.round(width / 32));
  const rows = Math.ceil(images.length / columns);
  return sharp({
    create: {
      width: columns * (width + margin) + margin,
      height: rows * (height + margin) + margin,
      channels: 3,
      background: 'white',
    },
  })
    .composite(
      images.map((input, i) => ({
        input: Buffer.from(input),
        left: margin + (i % columns) * (width + margin),
        top: margin + Math.floor(i / columns) * (height + margin),
      })),
    )
    .png()
    .toBuffer();
}
