import { expect, it } from 'vitest';
import { errorMetricOf, panelsOf } from '../../src/web/panels.js';

it('puts metrics of one kind into one chart, and those of different scales apart', () => {
  const shown = panelsOf([
    'alarm/x',
    'hack/a_share',
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
    ['training reward', 'original/mean', 'reward/mean'],
    ['held-out reward by set', 'validation/s/sampled/mean', 'validation/t/sampled/mean'],
    ['gain over the original prompt', 'original/gain'],
    ['loss', 'policy/loss', 'validation/loss'],
    ['reward parts', 'reward/v/overall'],
    ['reward parts, normalized', 'reward/v/normalised'],
    ['unscored', 'reward/unscored/timeout'],
    ['reward hacking: a share', 'hack/a_share'],
    ['reward hacking: b', 'hack/b'],
  ]);
});

it('shows a set by itself only if there are several', () => {
  expect(panelsOf(['validation/s/sampled/mean'])).toEqual([]);
});

it('knows the errors of held-out means alone', () => {
  expect(errorMetricOf('validation/s/greedy/mean')).toBe('validation/s/greedy/stderr');
  expect(errorMetricOf('validation/loss')).toBeNull();
  expect(errorMetricOf('reward/mean')).toBeNull();
});
