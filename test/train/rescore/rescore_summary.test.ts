import { expect, it } from 'vitest';
import { summarizeRescored } from '../../../src/train/rescore/rescore_summary.js';

function correlation(recorded: readonly number[], rescored: readonly number[]): number | null {
  const scored = (value: number) => ({ kind: 'scored', value, normalised: value, parts: {} }) as const;
  const episodes = recorded.map((value, i) => ({
    key: `1/${i}/0`,
    iteration: 1,
    set: 'training',
    recorded: scored(value),
    rescored: scored(rescored[i]),
    missing: null,
  }));
  const judgements = { replayed: 0, parsed_again: 0, asked: 0, missing: 0 };
  const names = { run_name: 'r', name: 'n', reward: 'a', recorded_reward: 'b', judgements, file: 'f' };
  return summarizeRescored(episodes, names).correlation;
}

it('has no correlation where either side does not vary', () => {
  expect(correlation([0, 0.5, 1], [0.1, 0.2, 0.3])).toBeCloseTo(1, 12);
  expect(correlation([0, 0.5, 1], [0.3, 0.2, 0.1])).toBeCloseTo(-1, 12);
  expect(correlation([0.5, 0.5, 0.5], [0.1, 0.2, 0.3])).toBeNull();
  expect(correlation([0.1, 0.2, 0.3], [0.5, 0.5, 0.5])).toBeNull();
  expect(correlation([0.5], [0.5])).toBeNull();
});
