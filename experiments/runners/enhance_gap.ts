/**
 * How much of the gap between no rewriting and an oracle's rewriting a run of prompt_enhance has closed on its held-out prompts: `node
 * dist/experiments/runners/enhance_gap.js RUN [--exp-dir DIR] [--clip FOLDER] [--sheet FILE.png] [--rows N]`. The oracle writes the dataset's labels. The answers are the run's
 * recorded ones, and pictures begin with the noise that the run gave them. --clip scores with another CLIP. --sheet draws the pictures of some
 * prompts: from the user's words, from the rewrites before and after training, and from the oracle's words.
 */
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import sharp from 'sharp';
import { must, UsageError } from '../../src/core/errors.js';
import type { Row } from '../../src/data/rows.js';
import type { RgbImage } from '../../src/core/images/image.js';
import { average, standardError } from '../../src/core/statistics.js';
import { runResolver } from '../../src/launch/models/wanted.js';
import { modelFolder } from '../../src/models/reference.js';
import { openImages } from '../../src/recipes/prompt_enhance/open.js';
import type { PromptEnhanceSettings } from '../../src/recipes/prompt_enhance/settings.js';
import { EnhanceTask } from '../../src/recipes/prompt_enhance/task.js';
import { openTextTask } from '../../src/recipes/text_answers/task.js';
import { clipScore } from '../../src/rewards/terms/clip.js';
import '../../src/recipes/settings.js';
import { EmbeddingModel, cosine } from '../../src/rewards/terms/clip/model.js';
import type { ModelReference } from '../../src/config/schema/model.js';
import { listEpisodeFiles } from '../../src/run/episodes.js';
import { readLines } from '../../src/run/journal.js';
import { findRun } from '../../src/run/find.js';
import { readRecord } from '../../src/run/record.js';
import { recordedConfig } from '../../src/run/recorded_config.js';
import { drawSheet, escapeMarkup, FONT, INK, loadFont, MUTED } from '../../src/run/report/svg.js';

/** The fields of a recorded episode that are read here. */
interface EpisodeLine {
  readonly key: string;
  readonly answer: string;
}

/** The texts given to the image model for one prompt, by their author. */
type Said = Readonly<Record<string, string>>;

async function measureGap(): Promise<void> {
  const { positionals, values } = parseArgs({
    args: process.argv.slice(2),
    allowPositionals: true,
    options: {
      'exp-dir': { type: 'string' },
      clip: { type: 'string' },
      sheet: { type: 'string' },
      rows: { type: 'string', default: '6' },
    },
  });
  const [run] = positionals;
  if (run === undefined) throw new UsageError('name a run of prompt_enhance');
  const paths = findRun(run, values['exp-dir']);
  const record = must(readRecord(paths), 'the record of the run');
  const settings = recordedConfig(paths, record).settings as unknown as PromptEnhanceSettings;
  const resolveRun = runResolver(settings.base_exp_dir, () => record);
  const words = await openTextTask(settings, resolveRun);
  const { environment } = settings;
  if (environment.type !== 'model') throw new UsageError(`${run} has its pictures from a server`);
  const images = openImages(environment, resolveRun);
  const task = new EnhanceTask(settings, words, images);
  const [term] = settings.reward.terms as { readonly name: string; readonly model?: ModelReference }[];
  const own = modelFolder(must(term?.model, 'the CLIP of reward.terms'), resolveRun);
  const clip = await EmbeddingModel.open(values.clip ?? own);

  const files = listEpisodeFiles(paths).filter(({ heldOut }) => heldOut);
  const [set] = task.validation;
  const count = Math.min(set.length, settings.validation.prompts);
  const answers = (file: (typeof files)[number], manner: string): Map<number, string> =>
    new Map(
      (readLines(file.path) as unknown as EpisodeLine[]).flatMap(({ key, answer }) => {
        const [, , , how, index] = key.split('/');
        return how === manner ? [[Number(index), answer] as const] : [];
      }),
    );
  const [before, after] = [must(files.at(0), 'held-out episodes'), must(files.at(-1), 'held-out episodes')];
  const recorded = ['sampled', 'greedy'].flatMap((manner) => [
    { name: `before, ${manner}`, said: answers(before, manner) },
    { name: `after, ${manner}`, said: answers(after, manner) },
  ]);

  const scores = new Map<string, number[]>();
  const exact = new Map<string, number[]>();
  const shown: { readonly said: Said; readonly pictures: readonly RgbImage[]; readonly original: string }[] = [];
  const asked = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const prompt = await set.prompt(index);
      const said: Record<string, string> = { 'no rewriting': prompt.instruction, oracle: labelOf(prompt.row) };
      for (const { name, said: theirs } of recorded) if (theirs.has(index)) said[name] = must(theirs.get(index), name);
      return { original: prompt.instruction, said, seed: task.seedOf(prompt, 0) };
    }),
  );
  const made = await images.generate(
    asked.flatMap(({ original, said, seed }) =>
      Object.entries(said).map(([name, prompt]) => ({ key: `${original} ${name}`, prompt, seed })),
    ),
  );
  let at = 0;
  for (const { original, said } of asked) {
    const text = await clip.textEmbedding(original);
    const pictures: RgbImage[] = [];
    for (const [name, prompt] of Object.entries(said)) {
      const picture = made[at++];
      if (picture.kind !== 'made') throw new UsageError(`${name}: ${picture.detail}`);
      const score = clipScore(cosine(await clip.imageEmbedding(picture.image), text));
      scores.set(name, [...(scores.get(name) ?? []), score]);
      exact.set(name, [...(exact.get(name) ?? []), prompt === said['oracle'] ? 1 : 0]);
      pictures.push(picture.image);
    }
    shown.push({ said, pictures, original });
  }
  const mean = (name: string): number => average(must(scores.get(name), name));
  const [floor, ceiling] = [mean('no rewriting'), mean('oracle')];
  console.log(`${count} held-out prompts, CLIP ${values.clip ?? own}`);
  for (const [name, values] of scores) {
    const closed = ((average(values) - floor) / (ceiling - floor)) * 100;
    const error = standardError(values).toFixed(3);
    const same = (100 * average(must(exact.get(name), name))).toFixed(0);
    console.log(
      `${name.padEnd(18)} ${average(values).toFixed(3)} ± ${error}  ${closed.toFixed(0)}% of the gap  ${same}% as the label`,
    );
  }
  if (values.sheet !== undefined) {
    const names = ['no rewriting', 'before, greedy', 'after, greedy', 'oracle'];
    const rows = shown.slice(0, Number(values.rows));
    const chosen = rows.map(({ original, said, pictures }) => ({
      original,
      pictures: names.map((name) => pictures[Object.keys(said).indexOf(name)]),
    }));
    writeFileSync(values.sheet, await sheetOf(chosen, names, `${run}: pictures of held-out prompts as rewritten`));
    for (const { said, original } of rows) {
      console.log(['', original, ...names.slice(1).map((name) => `  ${name}: ${said[name]}`)].join('\n'));
    }
  }
  await task.dispose();
  await clip.close();
}

/** The column with the plain words of the tiny world's captions. */
const LABEL = 'expected';

function labelOf(row: Row): string {
  const label = row[LABEL];
  if (typeof label === 'string') return label;
  throw new UsageError(`the held-out rows have no column '${LABEL}', which the oracle says`);
}

const MARGIN = 28;
const TILE = 96;
const GAP = 14;
const TEXT_WIDTH = 230;

/** The pictures of some prompts under the names of who wrote the words that they are of. */
async function sheetOf(
  rows: readonly { readonly original: string; readonly pictures: readonly RgbImage[] }[],
  names: readonly string[],
  caption: string,
): Promise<Uint8Array> {
  await loadFont();
  const left = (column: number): number => MARGIN + TEXT_WIDTH + column * (TILE + GAP);
  const top = (row: number): number => MARGIN + 24 + row * (TILE + GAP);
  const [width, height] = [left(names.length) - GAP + MARGIN, top(rows.length) - GAP + MARGIN];
  const heads = ['prompt', ...names].map((name, at) => {
    const place = at === 0 ? `x="${MARGIN}"` : `x="${left(at - 1) + TILE / 2}" text-anchor="middle"`;
    const font = `font-family="${FONT}" font-size="13" font-weight="bold" fill="${MUTED}"`;
    return `<text ${place} y="${MARGIN + 8}" ${font}>${escapeMarkup(name)}</text>`;
  });
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}">${heads.join('')}</svg>`;
  const overlays = rows.flatMap(({ original, pictures }, row) => [
    sharp({
      text: {
        ...{ text: `<span foreground="${INK}">${escapeMarkup(original)}</span>`, font: `${FONT} 14`, rgba: true },
        ...{ width: TEXT_WIDTH - GAP, wrap: 'word-char', spacing: 4 },
      },
    })
      .png()
      .toBuffer()
      .then((input) => ({ input, left: MARGIN, top: top(row) + 4 })),
    ...pictures.map(({ width: w, height: h, data }, column) =>
      sharp(data, { raw: { width: w, height: h, channels: 3 } })
        .resize(TILE, TILE, { kernel: 'nearest', fit: 'contain', background: '#ffffff' })
        .png()
        .toBuffer()
        .then((input) => ({ input, left: left(column), top: top(row) })),
    ),
  ]);
  return drawSheet(svg, overlays, caption);
}

await measureGap();
