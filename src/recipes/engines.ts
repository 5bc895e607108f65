/** The engine sections of settings, wherever their recipe has them. */
import type { EngineSettings } from '../schema/model.js';
import { getPath, setPath } from '../schema/paths.js';
import type { TrainedSettings } from '../schema/run.js';
import { recipeOf } from './settings.js';

/** The engines of a run; the first computes what learns. */
export function enginesOf(settings: TrainedSettings): EngineSettings[] {
  return recipeOf(settings).engines.map((key) => getPath(settings, key) as EngineSettings);
}

/** The same settings with every engine changed. */
export function withEngines<S extends TrainedSettings>(
  settings: S,
  change: (engine: EngineSettings) => EngineSettings,
): S {
  const changed = structuredClone(settings);
  for (const key of recipeOf(settings).engines) setPath(changed, key, change(getPath(settings, key) as EngineSettings));
  return changed;
}
