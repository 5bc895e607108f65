/** The columns of the line that a run prints per iteration. */

import type { ProgressColumn } from '../run/progress.js';

/** For a policy that learns from rewards. */
export const rewardColumns: readonly ProgressColumn[] = [
  { label: 'reward', metric: 'reward/mean', width: 6, digits: 3, sticky: false },
  { label: 'KL', metric: 'policy/kl', width: 7, digits: 4, sticky: false },
  { label: 'entropy', metric: 'policy/entropy', width: 6, digits: 3, sticky: false },
];

/** For a model that learns from labels. */
export const lossColumns: readonly ProgressColumn[] = [
  { label: 'loss', metric: 'policy/loss', width: 7, digits: 4, sticky: false },
  { label: 'held-out loss', metric: 'validation/loss', width: 7, digits: 4, sticky: true },
];
