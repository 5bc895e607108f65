/** Loads a config whose run this program trains itself. */
import type { LoadRequest, LoadedConfig } from '../../src/config/load.js';
import type { TrainedSettings } from '../../src/config/settings.js';
import { loadEvaluated } from './evaluated.js';

export async function loadTrained(request: LoadRequest): Promise<LoadedConfig & { settings: TrainedSettings }> {
  const config = await loadEvaluated(request);
  if (config.settings.task === 'external') throw new Error('a config of another trainer');
  return { ...config, settings: config.settings };
}
