/** Adapts an image tokenizer for packing datasets. */
import type { ImageCodes } from '../../../data/pack.js';
import type { VisionTokenizer } from '../../environments/vision_tokenizer.js';
import { jointVocabularyJson, THINKING_WORDS } from './emu3.js';

export function imageCodes(tokenizer: VisionTokenizer): ImageCodes {
  return {
    id: tokenizer.id,
    patch: tokenizer.config.patch,
    sizing: tokenizer.sizing,
    encode: (images) => tokenizer.encode(images),
    vocabulary: (words) => jointVocabularyJson([...THINKING_WORDS, ...words], tokenizer.config.codebook_size),
  };
}
