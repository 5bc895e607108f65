/** What recipes have alike that train a network of pictures on whole batches, by its loss alone: no policy, no rewards, nothing to start from. */
import { join } from 'node:path';
import type { TrainedSettings } from '../schema/run.js';
import { lossColumns } from './columns.js';
import type { TrainedRecipe } from './recipe.js';

type WholeBatchSettings = TrainedSettings & {
  readonly algorithm: { readonly sft: { readonly patience: number | null } };
  readonly data: { readonly dir: string; readonly tiny: { readonly folder: string } | null };
};

export const wholeBatchRecipe = {
  trainer: 'this program',
  models: [],
  tokenizers: [],
  engines: ['environment.engine'],
  reward: () => null,
  sampler: () => null,
  stepsPerIteration: () => 1,
  // One process computes the whole batch.
  microBatches: () => 1,
  columns: () => lossColumns,
  patience: ({ algorithm: { sft } }) =>
    sft.patience === null ? null : { key: 'algorithm.sft.patience', value: sft.patience },
  tinyData: ({ data: { dir, tiny } }) => (tiny === null ? null : join(dir, tiny.folder)),
  warnings: () => [],
  missing: () => [],
} satisfies Partial<TrainedRecipe<WholeBatchSettings>>;
