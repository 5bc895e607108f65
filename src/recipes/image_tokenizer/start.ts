/** The task `image_tokenizer`: trains the vision tokenizer, and writes the joint vocabulary that goes with its codes. */
import type { ImageTokenizerSettings } from '../../config/settings.js';
import { initImageTokenizer } from '../../nets/image_tokenizer.js';
import type { ImageTokenizerConfig } from '../../nets/image_tokenizer.js';
import { jointVocabularyJson } from '../../policies/tokens/emu3/space.js';
import type { Weights } from '../../models/files.js';
import { tinyVocabulary } from '../../tiny/world/vocabulary.js';

/** The words of EARL's thinking prefill. */
const THINKING_WORDS = ["Let's", 'think', 'step', 'by', 'step.'];

/** A tokenizer's start: random weights and its config. */
export function startingTokenizer(settings: ImageTokenizerSettings): {
  config: ImageTokenizerConfig;
  weights: Weights;
} {
  const config = settings.environment.init;
  return { config, weights: initImageTokenizer(config, settings.seed) };
}

/** `tokenizer.json` of the joint vocabulary: special tokens, the words that the data can hold, one token per code. */
export function jointTokenizerJson(settings: ImageTokenizerSettings): string {
  const { tiny } = settings.data;
  const words = tiny === null ? [] : tinyVocabulary({ columns: tiny.grid, rows: tiny.grid, cell: tiny.cell });
  return jointVocabularyJson([...THINKING_WORDS, ...words], settings.environment.init.codebook_size);
}
