/** The engine sections of settings, wherever their recipe has them. */
import type { EngineSettings } from '../schema/model.js';
import { getPath, setPath } from '../schema/paths.js';
import type { TrainedSettings } from '../schema/run.js';
import { recipeOf } from './settings.js';

/** The engines of a run; the first computes the model that learns. */
export function enginesOf(settings: TrainedSettings): EngineSettings[] {
  return engineKeys(settings).map((key) => getPath(settings, key) as EngineSettings);
}

/** Dotted keys of its engine sections; a model on a server has none. */
export function engineKeys(settings: TrainedSettings): string[] {
  return recipeOf(settings).engines.filter((key) => getPath(settings, key) !== undefined);
}

/** The same settings with every engine changed. */
export function withEngines<S extends TrainedSettings>(
  settings: S,
  change: (engine: EngineSettings, key: string) => EngineSettings,
): S {
  const changed = structuredClone(settings);
  for (const key of engineKeys(settings)) {
    setPath(changed, key, change(getPath(settings, key) as EngineSettings, key));
  }
  return changed;
}
