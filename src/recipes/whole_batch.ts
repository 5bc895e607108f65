/** What recipes share that train a network for pictures on whole batches by its loss alone: no policy, no rewards, nothing to start from. */
import type { TrainedSettings } from '../schema/run.js';
import { preset, type Learner, type Preset } from './preset.js';
import type { TrainedRecipe } from './recipe.js';
import { sharedRules, wholeBatches } from './training_rules.js';

/** The recipe of a network in `environment`. */
export function wholeBatchRecipe<S extends TrainedSettings>({
  learns,
  parts,
  ...own
}: Preset<S> & { readonly learns: Omit<Learner<S>, 'engine' | 'start'> }): TrainedRecipe<S> {
  const trained = {
    rules: [wholeBatches, ...sharedRules],
    learns: { engine: 'environment.engine', start: null, ...learns },
  };
  // One process computes the whole batch.
  return preset({ microBatches: () => 1, ...own, parts: [trained, ...parts] });
}
