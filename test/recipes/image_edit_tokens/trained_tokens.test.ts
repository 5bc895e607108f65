import { describe, expect, it } from 'vitest';
import { trainedTokens } from '../../../src/recipes/image_edit_tokens/open.js';
import type { TrainTokens } from '../../../src/config/schema/algorithm.js';
import { grid, SAMPLED, smallSpace } from '../../train/policies/small_policy.js';

const space = smallSpace(SAMPLED);
const answer = { ids: Int32Array.from(space.answer(grid(2, 2), [], true)) };

/** The trained tokens of an iteration, in words. */
function trained(iteration: number, cycle: TrainTokens): string {
  const weights = trainedTokens(iteration, answer, cycle, space);
  expect(weights).toHaveLength(answer.ids.length);
  const kinds = [...answer.ids].map((id) => (space.isVision(id) ? 'vision' : 'text'));
  const of = (kind: string): boolean[] => [...weights].filter((_, t) => kinds[t] === kind).map((w) => w === 1);
  const parts = ['text', 'vision'].filter((kind) => of(kind).every(Boolean));
  expect(['text', 'vision'].every((kind) => of(kind).every(Boolean) || !of(kind).some(Boolean))).toBe(true);
  return parts.join(' and ');
}

describe('the tokens that are trained', () => {
  it.each<[string, Pick<Exclude<TrainTokens, 'all'>, 'tokens'> & { steps?: number }, string[]]>([
    ['text, then vision alone', { tokens: 'text' }, ['text', 'text', 'vision', 'text', 'text', 'vision']],
    [
      'vision, then all',
      { tokens: 'vision' },
      ['vision', 'vision', 'text and vision', 'vision', 'vision', 'text and vision'],
    ],
    ['only text', { tokens: 'text', steps: 3 }, ['text', 'text', 'text', 'text', 'text']],
  ])('are, in a cycle, %s', (_name, cycle, expected) => {
    const whole = { cycle_steps: 3, steps: 2, ...cycle };
    expect(expected.map((_, i) => trained(i + 1, whole))).toEqual(expected);
  });
});
