import { expect, it } from 'vitest';
import { actionWeights, type Aggregation } from '../../src/train/update.js';

/** Trained actions by group and answer: 10 in three answers of a minibatch, 40 in the iteration's two. */
const trained = [
  [2, 3],
  [0, 5],
];
const iteration = { actions: 40, minibatches: 2, longest: 8 };

it.each<[Aggregation, number[][]]>([
  [
    'token',
    [
      [1 / 10, 1 / 10],
      [0, 1 / 10],
    ],
  ],
  [
    'answer',
    [
      [1 / 6, 1 / 9],
      [0, 1 / 15],
    ],
  ],
  [
    'dr_grpo',
    [
      [1 / 24, 1 / 24],
      [0, 1 / 24],
    ],
  ],
  [
    'dapo',
    [
      [1 / 20, 1 / 20],
      [0, 1 / 20],
    ],
  ],
])('%s weighs each action as its source says', (aggregation, expected) => {
  const found = actionWeights(aggregation, trained, iteration);
  found.forEach((group, i) => group.forEach((one, g) => expect(one).toBeCloseTo(expected[i][g], 12)));
});

it('lets answers of fixed length weigh alike without a longest one', () => {
  expect(actionWeights('dr_grpo', [[4, 4]], { ...iteration, longest: null })).toEqual([[1 / 8, 1 / 8]]);
});

it('weighs nothing if nothing is trained', () => {
  for (const aggregation of ['token', 'answer', 'dr_grpo', 'dapo'] as const) {
    expect(actionWeights(aggregation, [[0, 0]], { ...iteration, actions: 0 })).toEqual([[0, 0]]);
  }
});
