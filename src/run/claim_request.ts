/** From a loaded config to what claiming its run needs. */
import { resolve } from 'node:path';
import { diffSettings, type SettingChange } from '../config/hash.js';
import type { LoadedConfig } from '../config/load.js';
import { nearest } from '../config/nearest.js';
import type { Settings } from '../config/settings.js';
import { listSettings } from '../config/validate.js';
import { ConfigError } from '../core/errors.js';
import type { ClaimRequest } from './claim.js';
import type { PlainObject } from './record.js';
import { recordedSettings } from './recorded_config.js';

/** Everything about this attempt that is not in the config. */
export type AttemptContext = Pick<ClaimRequest, 'command' | 'versions' | 'devices' | 'parents' | 'allowChanges'>;

/** What of a loaded config a claim is made from. */
export type ClaimedConfig = Pick<LoadedConfig, 'settings' | 'resultHash' | 'importHash'> &
  Partial<Pick<LoadedConfig, 'file' | 'overlays' | 'sets' | 'allowChanges'>>;

/**
 * The claim of a config's run. `allowChanges` of the context goes before that of the config. Its comparison raises
 * ConfigError when that names what is no setting, and RunError when the recorded settings are not known to this version.
 */
export function claimRequest(config: ClaimedConfig, context: AttemptContext): ClaimRequest {
  const allowChanges = context.allowChanges ?? config.allowChanges ?? [];
  const { file, overlays = [], sets = [] } = config;
  return {
    ...context,
    settings: { ...config.settings },
    compare: (before) => changesSince(before, config.settings, allowChanges),
    resultHash: config.resultHash,
    importHash: config.importHash,
    allowChanges,
    ...(file === undefined
      ? {}
      : { config: { file: resolve(file), overlays: overlays.map((overlay) => resolve(overlay)), sets } }),
  };
}

/** What changed since the run was last started. Raises ConfigError when an allowed key is no setting that decides a result. */
export function changesSince(
  before: PlainObject,
  settings: Settings,
  allowChanges: readonly string[],
): readonly SettingChange[] {
  const recorded = recordedSettings(before);
  const known = new Map([recorded, settings].flatMap(listSettings).map(({ key, effect }) => [key, effect]));
  for (const key of allowChanges) checkAllowed(key, known);
  return diffSettings(recorded, settings);
}

function checkAllowed(key: string, known: ReadonlyMap<string, 'result' | 'operation'>): void {
  const effect = known.get(key);
  if (effect === 'result') return;
  if (effect === 'operation') {
    throw new ConfigError(`${key} does not decide a run's result: it may change at any resume`, {
      where: '--allow-changes',
      next: `Leave ${key} out of --allow-changes.`,
    });
  }
  const names = [...known.keys()].filter((name) => known.get(name) === 'result');
  const below = names.filter((name) => name.startsWith(`${key}.`)).slice(0, 6);
  const close = below.length > 0 ? below.join(', ') : nearest(key, names);
  throw new ConfigError(`there is no setting '${key}'${close === null ? '' : `; did you mean ${close}?`}`, {
    where: '--allow-changes',
    next: '`editrl config show CONFIG --list` prints every setting; separate several by commas.',
  });
}
