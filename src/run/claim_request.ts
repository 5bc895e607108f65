/** From a loaded config to what claiming its run needs. */
import { diffSettings } from '../config/hash.js';
import type { LoadedConfig } from '../config/load.js';
import type { Settings } from '../config/settings.js';
import type { ClaimRequest } from './claim.js';

/** Everything about this attempt that is not in the config. */
export type AttemptContext = Pick<ClaimRequest, 'command' | 'versions' | 'devices' | 'parents'>;

/** The claim of a config's run. */
export function claimRequest(
  config: Pick<LoadedConfig, 'settings' | 'resultHash' | 'importHash'>,
  context: AttemptContext,
): ClaimRequest {
  return {
    ...context,
    settings: { ...config.settings },
    // A record that `run/` wrote holds settings that passed the schema.
    compare: (before) => diffSettings(before as unknown as Settings, config.settings),
    resultHash: config.resultHash,
    importHash: config.importHash,
  };
}
