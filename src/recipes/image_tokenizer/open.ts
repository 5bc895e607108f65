/** Opens `image_tokenizer`: trains the vision tokenizer, and writes the joint vocabulary that goes with its codes. */
import { openImageDataset, readImages } from '../../data/images.js';
import { sha256 } from '../../core/image.js';
import type { SampleSource } from '../../data/types.js';
import { toPatches } from '../../environments/trained_vision_tokens.js';
import { jointVocabularyJson, THINKING_WORDS } from '../../policies/tokens/emu3.js';
import { tinyVocabulary } from '../../tiny/world/vocabulary.js';
import { tokenizerNetwork } from '../../train/image_tokenizer.js';
import type { OpenRecipe } from '../../train/opener.js';
import { wholeBatchOpener } from '../open_whole_batch.js';
import { imageData } from '../../tiny/world/dataset.js';
import type { ImageTokenizerSettings } from './settings.js';

export const imageTokenizer: OpenRecipe<ImageTokenizerSettings> = wholeBatchOpener(
  imageData,
  async (path, { environment }) => patchesOf(path, environment.init.patch),
  (source, index) => ({
    id: `sample ${index}`,
    words: '',
    picture: async () => sha256(new Uint8Array(Float32Array.from(await source.read(index)).buffer)),
  }),
  (settings, data) => {
    const { seed, environment, algorithm } = settings;
    const tokenizerJson = jointTokenizerJson(settings);
    return tokenizerNetwork({ seed, init: environment.init, size: algorithm.sft.batch_size, tokenizerJson }, data);
  },
);

/** The images of a dataset as patches, each decoded once. Raises DataError for an image that cannot be cut into patches. */
function patchesOf(path: string, patch: number): SampleSource<Promise<Float32Array>> {
  const images = openImageDataset(path);
  const kept = new Map<number, Promise<Float32Array>>();
  const cut = async (index: number): Promise<Float32Array> => toPatches(await readImages(images, [index]), patch);
  return {
    ...images,
    read: (index) => {
      const known = kept.get(index) ?? cut(index);
      kept.set(index, known);
      return known;
    },
  };
}

/** `tokenizer.json` of the joint vocabulary: special tokens, the words that the data may contain, and one token per code. */
function jointTokenizerJson({ data: { tiny }, environment }: ImageTokenizerSettings): string {
  const words = tiny === null ? [] : tinyVocabulary({ columns: tiny.grid, rows: tiny.grid, cell: tiny.cell });
  return jointVocabularyJson([...THINKING_WORDS, ...words], environment.init.codebook_size);
}
