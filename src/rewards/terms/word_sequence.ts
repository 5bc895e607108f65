/** Compares the words of an answer with a labeled answer in order: by edit distance, and for equality. */
import { editDistance } from '../../core/nearest.js';
import { DataError } from '../../core/errors.js';
import { termKind, type TermKind } from './term.js';
import { wordsOf } from './word_overlap.js';

type Words = readonly string[];

/** 1 - d / max(|a|, |b|) in [0, 1], where d is the edit distance in words: each missing, extra or different word costs. 0 for two empty sequences. */
export function sequenceAgreement(a: Words, b: Words): number {
  const longer = Math.max(a.length, b.length);
  return longer === 0 ? 0 : 1 - editDistance(a, b) / longer;
}

/** 1 for the same words in the same order, else 0. */
export function sameWords(a: Words, b: Words): number {
  return a.length > 0 && a.length === b.length && a.every((word, i) => word === b[i]) ? 1 : 0;
}

function wrongLabel(label: string): string | null {
  if (wordsOf(label).length > 0) return null;
  return `the labeled answer ${JSON.stringify(label.slice(0, 80))} contains no word; allowed: at least one letter or digit`;
}

/** A term that compares an answer's words with those of the label. Its score raises DataError for a label without words. */
function comparing<Name extends string>(
  name: Name,
  description: string,
  agreement: (answerWords: Words, expected: Words) => number,
): TermKind<Name, Record<never, never>> {
  return termKind({
    name,
    description,
    fields: {},
    reads: 'words',
    needs: { judge: false, truth: false, source: false, words: true },
    wrongLabel,
    create: async () => ({
      name,
      async score({ key, answer = '', expected = '' }) {
        const wrong = wrongLabel(expected);
        if (wrong !== null) {
          throw new DataError(wrong, { where: key, next: 'Correct this label, or leave the row out.' });
        }
        const value = agreement(wordsOf(answer), wordsOf(expected));
        return { kind: 'scored', value, normalised: value, parts: {} };
      },
      close: async () => {},
    }),
  });
}

export const wordSequence = comparing(
  'word_sequence',
  'Agreement of the words with those of the labeled answer in their order, from 0 to 1: 1 - the edit distance in words / the length of the longer text. Missing, repeated, exchanged and extra words cost. Case and punctuation do not matter.',
  sequenceAgreement,
);

export const exactWords = comparing(
  'exact_words',
  '1 if the answer has the same words in the same order as the labeled answer, else 0. Case and punctuation do not matter.',
  sameWords,
);
