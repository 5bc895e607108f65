/**
 * Agreement of an answer's words with those of a labeled answer, as bags of words: |A ∩ B| / |A ∪ B| of the sets of lower-cased words.
 * Order and count do not matter. The term `word_sequence` compares these.
 */
import { termKind } from './term.js';
import { intersectionOverUnion } from './format_accuracy.js';
import type { Outcome } from '../score/types.js';

/** The words of a text in their order and in lower case: letters and digits, with apostrophes within. */
export function wordsOf(text: string): readonly string[] {
  return text.toLowerCase().match(/[\p{L}\p{N}]+(?:['’][\p{L}\p{N}]+)*/gu) ?? [];
}

export const wordOverlap = termKind({
  name: 'word_overlap',
  description:
    'A bag of words: the distinct words that the answer shares with the labeled answer, divided by the distinct words of both, from 0 to 1. Order and repetition do not matter: "a square above a circle" scores 1 against "a circle above a square".',
  fields: {},
  reads: 'words',
  needs: { judge: false, truth: false, source: false, words: true },
  create: async () => ({
    name: 'word_overlap',
    async score({ answer = '', expected = '' }): Promise<Outcome> {
      const value = intersectionOverUnion(new Set(wordsOf(answer)), new Set(wordsOf(expected)));
      return { kind: 'scored', value, normalised: value, parts: {} };
    },
    close: async () => {},
  }),
});
