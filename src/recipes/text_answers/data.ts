/** The tiny world in words, as this recipe's dataset and vocabulary. */
import { captionVocabulary, makeTinyWords, tinyWords, type WordOptions } from '../../tiny/world/words.js';
import type { WorldWords } from '../open_vocabulary.js';
import { tinyDataset } from '../tiny_data.js';
import type { TextSettings } from './settings.js';

export const wordData = tinyDataset<NonNullable<TextSettings['data']['tiny']>, WordOptions>({
  things: 'captions',
  optionsOf: ({ seed, counts: { labelled, train, validation } }) => ({ seed, sizes: { labelled, train, validation } }),
  find: tinyWords,
  make: makeTinyWords,
});

/** The words of the tiny world and the settings' own texts, for a model from random weights. */
export function wordsOf({ policy, prompt }: Pick<TextSettings, 'policy' | 'prompt'>): WorldWords {
  const texts = [prompt.template ?? '', policy.assistant_prefill].map((text) => text.replaceAll(/\{[^}]*\}/g, ' '));
  return { words: captionVocabulary(), texts, special: [] };
}
