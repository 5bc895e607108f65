/** The engine sections of settings, wherever their recipe has them. */
import { InternalError } from '../core/errors.js';
import type { EngineSettings } from '../schema/model.js';
import { getPath, setPath } from '../schema/paths.js';
import type { TrainedSettings } from '../schema/run.js';
import { isObject } from '../schema/walk.js';
import { recipeOf } from './settings.js';

/** The engines of a run; the first computes what learns. */
export function enginesOf(settings: TrainedSettings): EngineSettings[] {
  return recipeOf(settings).engines.map((key) => engineAt(settings, key));
}

/** The same settings with every engine changed. */
export function withEngines<S extends TrainedSettings>(
  settings: S,
  change: (engine: EngineSettings) => EngineSettings,
): S {
  const changed = structuredClone(settings);
  for (const key of recipeOf(settings).engines) setPath(changed, key, change(engineAt(settings, key)));
  return changed;
}

function engineAt(settings: TrainedSettings, key: string): EngineSettings {
  const engine = getPath(settings, key);
  if (!isObject(engine)) throw new InternalError(`recipe ${settings.task} has no engine at ${key}`);
  return engine as EngineSettings;
}
