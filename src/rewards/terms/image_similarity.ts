/** How alike an edit is to its source, or to the labelled result, pixel by pixel. A cheap baseline: it is highest for a copy. */
import { z } from 'zod';
import { DataError } from '../../core/errors.js';
import { result } from '../../schema/mark.js';
import { sourceSimilarity } from '../score/image_statistics.js';
import { termKind } from './term.js';
import type { Outcome } from '../score/types.js';

export const imageSimilarity = termKind({
  name: 'image_similarity',
  description:
    'How alike the edit is to its source or to the labelled result: 1 - mean |a - b| / 255 over all samples, from 0 to 1; 1 is an exact copy.',
  fields: {
    to: result(
      'What the edit is compared with; where the sizes differ, each of its pixels with the nearest one.',
      z.enum(['source', 'truth']).default('source'),
    ),
  },
  reads: 'image',
  needs: { judge: false, truth: false, source: true },
  create: async ({ to }) => ({
    name: 'image_similarity',
    async score(item): Promise<Outcome> {
      const other = item[to];
      if (other === null) {
        const what = { source: 'the source image', truth: 'the labelled result' }[to];
        throw new DataError(`reward 'image_similarity' compares with ${what}, but this prompt has none`, {
          where: item.key,
          next: 'Train on data that has it, or set the field `to` of the term to the other one.',
        });
      }
      if (item.edited === null) return { kind: 'zero_by_rule', reason: 'undecodable', parts: {} };
      const value = sourceSimilarity(item.edited, other);
      return { kind: 'scored', value, normalised: value, parts: { [`image_similarity/${to}`]: value } };
    },
    close: async () => {},
  }),
});
