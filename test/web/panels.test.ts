import { expect, it } from 'vitest';
import { errorMetricOf, panelsOf } from '../../src/web/panels.js';

it('puts metrics of one kind into one chart, and those of different scales apart', () => {
  const shown = panelsOf([
    'alarm/x',
    'hack/a',
    'hack/b',
    'original/gain',
    'original/mean',
    'policy/loss',
    'reward/mean',
    'reward/unscored/timeout',
    'reward/v/normalised',
    'reward/v/overall',
    'validation/loss',
    'validation/s/sampled/mean',
    'validation/t/sampled/mean',
    'validation/sampled/mean',
    'validation/sampled/stderr',
  ]).map(({ title, metrics }) => [title, ...metrics]);
  expect(shown).toEqual([
    ['held-out reward', 'validation/sampled/mean'],
    ['reward in training', 'original/mean', 'reward/mean'],
    ['held-out reward by set', 'validation/s/sampled/mean', 'validation/t/sampled/mean'],
    ['what answers add to the reward of the prompt itself', 'original/gain'],
    ['loss', 'policy/loss', 'validation/loss'],
    ['reward parts', 'reward/v/overall'],
    ['reward parts, normalised', 'reward/v/normalised'],
    ['unscored', 'reward/unscored/timeout'],
    ['what hack alarms watch', 'hack/a'],
    ['what hack alarms watch', 'hack/b'],
  ]);
});

it('shows a set by itself only where there are several', () => {
  expect(panelsOf(['validation/s/sampled/mean'])).toEqual([]);
});

it('knows the errors of held-out means alone', () => {
  expect(errorMetricOf('validation/s/greedy/mean')).toBe('validation/s/greedy/stderr');
  expect(errorMetricOf('validation/loss')).toBeNull();
  expect(errorMetricOf('reward/mean')).toBeNull();
});
