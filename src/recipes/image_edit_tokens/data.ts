/** The tiny world's edits, written in the codes of an image tokenizer. */
import { decodeImage } from '../../core/image.js';
import { openEditDataset } from '../../data/edits.js';
import type { EditSample } from '../../data/types.js';
import { loadVisionTokenizer } from '../../environments/vision_tokens.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { sampledSets, type SampledSet, type SampleRow } from '../../scoring/sample_rows.js';
import { editData, type ImageTokenizerLike } from '../../tiny/world/dataset.js';
import type { ImageEditSettings } from './settings.js';

/** Makes them if a config needs them and they do not exist yet; needs the finished tokenizer that `environment.model` names. */
export async function makeData(
  settings: ImageEditSettings,
  resolveRun: RunResolver,
  say: (line: string) => void,
): Promise<void> {
  if (settings.data.tiny === null) return;
  const tokenizer = loadVisionTokenizer(modelFolder(settings.environment.model, resolveRun), { provider: 'cpu' });
  try {
    await editData(tokenizer).make(settings, resolveRun, say);
  } finally {
    await tokenizer.dispose();
  }
}

/** The codes of drawn rows are not used: rewards see pixels. */
const noCodes: ImageTokenizerLike = {
  id: 'none',
  encode: async (images) => images.map(() => ({ height: 1, width: 1, codes: new Int32Array(1) })),
};

/**
 * The first edits of each dataset, with the labelled picture, the unchanged source, and an answer without a picture. Leaves out samples with only
 * codes, which a model would have to decode.
 */
export function sampleEdits(settings: ImageEditSettings, count: number): Promise<SampledSet[]> {
  return editData(noCodes).sampled(settings, count, (place) =>
    sampledSets(settings.data, async ({ path }) => {
      const source = openEditDataset(place(path));
      const first = Array.from({ length: Math.min(count, source.length) }, (_, index) => source.read(index));
      const whole = first.filter(({ sourcePng }) => sourcePng !== null);
      return Promise.all(whole.map((sample) => sampleOf(sample, source.name)));
    }),
  );
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
