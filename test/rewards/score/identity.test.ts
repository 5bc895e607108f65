import { expect, it } from 'vitest';
import { rewardScale } from '../../../src/rewards/score/identity.js';

const scaleOf = (terms: readonly unknown[]) => rewardScale((path) => (path === 'reward.terms' ? terms : undefined));

it('names the terms of a reward with their weights, whichever cells of an edit they are credited to', () => {
  const terms = (credit?: string) => [
    { name: 'word_sequence', weight: 0.25, ...(credit === undefined ? {} : { credit }) },
    { name: 'exact_words', weight: 0.75, ...(credit === undefined ? {} : { credit }) },
  ];
  const before = scaleOf(terms());
  expect(before).toMatchObject({ label: '0.25 word_sequence + 0.75 exact_words', terms: 2, most: 1 });
  for (const credit of ['all', 'changed', 'kept']) expect(scaleOf(terms(credit)), credit).toEqual(before);
});

it('says nothing of terms that it does not know', () => {
  expect(scaleOf([{ name: 'no_such_term', weight: 1 }])).toBeNull();
  expect(scaleOf([{ name: 'exact_words', weight: 1, no_such_field: 2 }])).toBeNull();
});
