/** Pixel-by-pixel similarity of an edit to its source, or to the labeled result. A cheap baseline. */
import { z } from 'zod';
import { DataError } from '../../core/errors.js';
import { result } from '../../core/schema/mark.js';
import { editAgreement, sourceSimilarity } from '../score/image_statistics.js';
import { termKind } from './term.js';
import type { Outcome } from '../score/types.js';

type Compared = 'source' | 'truth';
type Counted = 'all' | 'changed' | null;

/** A similarity to the labeled result is another quantity than one to the source, and so is one over other pixels. */
const nameOf = ({ to, of }: { readonly to: Compared; readonly of: Counted }): string =>
  to === 'source' ? 'image_similarity' : of === 'all' ? 'image_similarity_truth_all' : 'image_similarity_truth';

export const imageSimilarity = termKind({
  name: 'image_similarity',
  description: 'Pixel-by-pixel similarity of the edit to its source or to the labeled result, from 0 to 1.',
  fields: {
    to: result(
      'The image that the edit is compared with. If the sizes differ, each of its pixels is compared with the nearest pixel.',
      z.enum(['source', 'truth']).default('source'),
    ),
    of: result(
      "Which pixels count. 'all' is 1 - mean |a - b| / 255 over the whole image: a copy of the source gets the most if little is to be changed. 'changed', with to: 'truth', is how far the edit goes from the source to the labeled result where these differ, times how well the rest is kept: a copy scores 0. null means 'changed' if there are a source and a labeled result to compare with, else 'all'.",
      z.enum(['all', 'changed']).nullable().default(null),
    ),
  },
  reads: 'image',
  needs: { judge: false, truth: false, source: true },
  nameOf,
  conflict: ({ to, of }) =>
    of === 'changed' && to === 'source'
      ? {
          field: 'of',
          message: "found 'changed' with to 'source'; allowed: 'changed' with to 'truth', else 'all' or null",
        }
      : null,
  create: async ({ to, of }) => ({
    name: nameOf({ to, of }),
    async score({ key, edited, source, truth }): Promise<Outcome> {
      const other = { source, truth }[to];
      if (other === null) throw lacking(to, key);
      if (of === 'changed' && source === null) throw lacking('source', key);
      if (edited === null) return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
      const all = sourceSimilarity(edited, other);
      const parts = { [`image_similarity/${to}`]: all };
      if (to === 'source' || of === 'all' || source === null) {
        return { kind: 'scored', value: all, normalised: all, parts };
      }
      const { made, kept } = editAgreement(edited, source, other);
      const value = made * kept;
      const both = { ...parts, 'image_similarity/made': made, 'image_similarity/kept': kept };
      return { kind: 'scored', value, normalised: value, parts: both };
    },
    close: async () => {},
  }),
});

function lacking(what: 'source' | 'truth', where: string): DataError {
  const words = { source: 'the source image', truth: 'the labeled result' }[what];
  return new DataError(`reward 'image_similarity' compares with ${words}, but this prompt has none`, {
    where,
    next: "Train on data that has it, or set `to` to the other one, or `of` to 'all'.",
  });
}
