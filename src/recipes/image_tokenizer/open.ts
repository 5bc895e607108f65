/** Opens `image_tokenizer`: trains the vision tokenizer, and writes the joint vocabulary that goes with its codes. */
import type { ImageTokenizerSettings } from './settings.js';
import { sessionOptions } from '../../engines/onnx/session_options.js';
import { jointVocabularyJson, THINKING_WORDS } from '../../policies/tokens/emu3/space.js';
import { tinyVocabulary } from '../../tiny/world/vocabulary.js';
import { openImageDataset } from '../../data/images.js';
import { noteDatasets, type Bench } from '../../train/bench.js';
import { ImageTokenizerTraining } from '../../train/image_tokenizer.js';
import type { Training } from '../../train/loop.js';
import type { OpenRecipe } from '../../train/opener.js';
import { scheduleOf } from '../../train/schedule.js';
import { imageData } from './data.js';

function open(settings: ImageTokenizerSettings, bench: Bench): Promise<Training> {
  const { seed, environment, optimizer, algorithm, data, validation } = settings;
  const placed = imageData.placesOf(settings);
  const [train, heldOut] = [data.train, data.validation].map((sources) =>
    sources.map(({ path }) => openImageDataset(placed(path))),
  );
  noteDatasets(bench, data, [...train, ...heldOut]);
  const coefficients = data.train.flatMap(({ coefficient }) => (coefficient === null ? [] : [coefficient]));
  return ImageTokenizerTraining.open({
    seed,
    init: environment.init,
    optimizer,
    schedule: scheduleOf(settings),
    sft: algorithm.sft,
    data: { train, coefficients, validation: heldOut },
    validation,
    session: sessionOptions(environment.engine),
    tokenizerJson: jointTokenizerJson(settings),
  });
}

/** `tokenizer.json` of the joint vocabulary: special tokens, the words that the data can hold, one token per code. */
export function jointTokenizerJson({ data: { tiny }, environment }: ImageTokenizerSettings): string {
  const words = tiny === null ? [] : tinyVocabulary({ columns: tiny.grid, rows: tiny.grid, cell: tiny.cell });
  return jointVocabularyJson([...THINKING_WORDS, ...words], environment.init.codebook_size);
}

export const imageTokenizer: OpenRecipe<ImageTokenizerSettings> = {
  makeData: imageData.make,
  open,
  openTask: async () => null,
  sampleRows: async () => [],
};
