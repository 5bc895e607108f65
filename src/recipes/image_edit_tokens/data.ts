/** The tiny world's edits, written in the codes of an image tokenizer. */
import { join } from 'node:path';
import { decodeImage } from '../../core/image.js';
import { openEditDataset } from '../../data/edits.js';
import type { EditSample } from '../../data/types.js';
import { loadVisionTokenizer } from '../../environments/vision_tokens.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { makeTinyEdits, tinyEdits, type ImageTokenizerLike, type TinyEditOptions } from '../../tiny/world/dataset.js';
import { pathIn } from '../../tiny/world/parts.js';
import { sampledSets, type SampledSet, type SampleRow } from '../../scoring/sample_rows.js';
import { atMost, inTemporaryRoot } from '../tiny_data.js';
import type { ImageEditSettings } from './settings.js';

/** Makes them where a config asks for them and they are not there yet; needs the finished tokenizer that `environment.model` names. */
export async function makeData(
  settings: ImageEditSettings,
  resolveRun: RunResolver,
  say: (line: string) => void,
): Promise<void> {
  const world = worldOf(settings);
  if (world === null) return;
  const { root, options } = world;
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    if (tinyEdits(root, options, tokenizer.id) === null) say(`making the tiny world's edits in ${root}`);
    await makeTinyEdits(root, options, tokenizer);
  } finally {
    await tokenizer.dispose();
  }
}

/** Where a dataset lies that a config names by its path: the tiny world's edits differ with the tokenizer that wrote them. */
export function placesOf(settings: ImageEditSettings, tokenizerId: string): (path: string) => string {
  const world = worldOf(settings);
  if (world === null) return (path) => path;
  const folder = tinyEdits(world.root, world.options, tokenizerId);
  return (path) => pathIn(folder, world.root, path);
}

/** The codes of drawn rows are not looked at: rewards see pixels. */
const noCodes: ImageTokenizerLike = {
  id: 'none',
  encode: async (images) => images.map(() => ({ height: 1, width: 1, codes: new Int32Array(1) })),
};

/**
 * The first edits of each dataset: the labelled picture, the source unchanged, and an answer without a picture. Samples that have codes
 * alone are left out: a model would have to decode them.
 */
export function sampleEdits(settings: ImageEditSettings, count: number): Promise<SampledSet[]> {
  const { data } = settings;
  const read = (place: (path: string) => string): Promise<SampledSet[]> =>
    sampledSets(data, async ({ path }) => {
      const source = openEditDataset(place(path));
      const first = Array.from({ length: Math.min(count, source.length) }, (_, index) => source.read(index));
      const whole = first.filter(({ sourcePng }) => sourcePng !== null);
      return Promise.all(whole.map((sample) => sampleOf(sample, source.name)));
    });
  const world = worldOf(settings);
  if (world === null) return read((path) => path);
  const options = { ...world.options, sizes: atMost(world.options.sizes, count) };
  const drawn = async (root: string): Promise<string | null> => {
    await makeTinyEdits(root, options, noCodes);
    return tinyEdits(root, options, noCodes.id);
  };
  return inTemporaryRoot(world.root, drawn, read);
}

async function sampleOf(sample: EditSample, dataset: string): Promise<SampleRow> {
  const { id, instruction, sourcePng, targetPng } = sample;
  const source = sourcePng === null ? null : await decodeImage(sourcePng, id);
  const truth = targetPng === null ? null : await decodeImage(targetPng, id);
  return {
    place: `${dataset}: ${id}`,
    item: { instruction, source, truth },
    answers: [
      ...(truth === null ? [] : [{ what: 'the labelled picture', edited: truth }]),
      { what: 'the source, unchanged', edited: source },
      { what: 'an answer without a picture', edited: null },
    ],
  };
}

function worldOf({ data: { dir, tiny } }: ImageEditSettings): {
  readonly root: string;
  readonly options: Pick<TinyEditOptions, 'seed' | 'geometry' | 'sizes'>;
} | null {
  if (tiny === null) return null;
  const { folder, seed, grid, cell, counts } = tiny;
  const { train, prompts, validation, truth } = counts;
  const sizes = { train, prompts, validation, truth };
  return { root: join(dir, folder), options: { seed, geometry: { columns: grid, rows: grid, cell }, sizes } };
}
