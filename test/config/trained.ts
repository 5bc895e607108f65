/** Settings of one recipe, from the form that all have in common. */
import type { LoadRequest, LoadedConfig } from '../../src/config/load.js';
import type { ImageEditSettings } from '../../src/recipes/image_edit_tokens/settings.js';
import { isTrainable } from '../../src/config/recipes.js';
import type { RunSettings, TrainedSettings } from '../../src/config/schema/run.js';
import { loadEvaluated } from './evaluated.js';

type OnDatasets = TrainedSettings & Required<Pick<TrainedSettings, 'data'>>;

/** Loads a config whose run this program trains itself, on datasets. */
export async function loadTrained(request: LoadRequest): Promise<LoadedConfig & { settings: OnDatasets }> {
  const { settings, ...config } = await loadEvaluated(request);
  if (!isTrainable(settings)) throw new Error('a config of another trainer');
  const { data } = settings;
  if (data === undefined) throw new Error('a config without datasets');
  return { ...config, settings: { ...settings, data } };
}

export function editSettings(settings: RunSettings): ImageEditSettings {
  if (settings.task !== 'image_edit_tokens') throw new Error(`a run of ${settings.task}`);
  return settings as ImageEditSettings;
}
