/** Agreement of an answer's words with those of a labelled answer: |A ∩ B| / |A ∪ B| of the sets of lower-cased words. */
import { termKind } from './term.js';
import { intersectionOverUnion } from './format_accuracy.js';
import type { Outcome } from '../score/types.js';

/** The distinct words of a text in lower case: letters and digits, with apostrophes within. */
export function wordsOf(text: string): ReadonlySet<string> {
  return new Set(text.toLowerCase().match(/[\p{L}\p{N}]+(?:['’][\p{L}\p{N}]+)*/gu) ?? []);
}

export const wordOverlap = termKind({
  name: 'word_overlap',
  description:
    'How far the words of an answer are those of the labelled one, from 0 to 1: the words of both over the words of either, so that listing every word does not win.',
  fields: {},
  reads: 'words',
  needs: { judge: false, truth: false, source: false, words: true },
  create: async () => ({
    name: 'word_overlap',
    async score({ answer = '', expected = '' }): Promise<Outcome> {
      const value = intersectionOverUnion(wordsOf(answer), wordsOf(expected));
      return { kind: 'scored', value, normalised: value, parts: {} };
    },
    close: async () => {},
  }),
});
