import { expect, it } from 'vitest';
import { rewardScale } from '../../../src/rewards/score/identity.js';

const scaleOf = (terms: readonly unknown[]) => rewardScale((path) => (path === 'reward.terms' ? terms : undefined));

it('names the terms of a reward with their weights', () => {
  const terms = [
    { name: 'word_sequence', weight: 0.25 },
    { name: 'exact_words', weight: 0.75 },
  ];
  expect(scaleOf(terms)).toMatchObject({ label: '0.25 × word_sequence + 0.75 × exact_words', terms: 2, most: 1 });
});

it('reports nothing of terms that it does not know', () => {
  expect(scaleOf([{ name: 'no_such_term', weight: 1 }])).toBeNull();
  expect(scaleOf([{ name: 'exact_words', weight: 1, no_such_field: 2 }])).toBeNull();
});
