/** Converts a loaded config into a request to claim its run. */
import { resolve } from 'node:path';
import { diffSettings, textDigests, type SettingChange } from '../../config/hash.js';
import type { LoadedConfig } from '../../config/load.js';
import { dependencies } from '../../config/models.js';
import { nearest } from '../../core/nearest.js';
import { isTrainable } from '../../config/recipes.js';
import type { RunSettings } from '../../config/schema/run.js';
import { listSettings } from '../../config/validate.js';
import { ConfigError } from '../../core/errors.js';
import type { ClaimRequest } from './claim.js';
import { listCheckpoints } from '../checkpoints.js';
import { parentChanges, parentKey } from './parents.js';
import { RunPaths } from '../paths.js';
import type { RunRecord } from '../record.js';
import { recordedSettings } from '../recorded_config.js';
import { readState } from '../state.js';

/** Facts about this attempt that the config does not contain. */
export type AttemptContext = Pick<
  ClaimRequest,
  'command' | 'versions' | 'devices' | 'parents' | 'models' | 'allowChanges'
>;

/** The parts of a loaded config that a claim needs. */
export type ClaimedConfig = Pick<LoadedConfig, 'settings' | 'resultHash' | 'importHash'> &
  Partial<Pick<LoadedConfig, 'file' | 'overlays' | 'sets' | 'experiment' | 'allowChanges'>>;

/**
 * The request to claim a config's run. `allowChanges` of the context takes precedence over the config's. The comparison raises ConfigError for an
 * allowed key that is not a setting, and RunError for recorded settings that this version does not know.
 */
export function claimRequest(config: ClaimedConfig, context: AttemptContext): ClaimRequest {
  const allowChanges = context.allowChanges ?? config.allowChanges ?? [];
  const { file, overlays = [], sets = [], experiment } = config;
  return {
    ...context,
    settings: { ...config.settings },
    learnsInCheckpoints: isTrainable(config.settings),
    compare: (_before, record) => changesSince(record, config.settings, allowChanges),
    texts: textDigests(config.settings),
    resultHash: config.resultHash,
    importHash: config.importHash,
    allowChanges,
    ...(experiment === undefined ? {} : { experiment }),
    ...(file === undefined
      ? {}
      : { config: { file: resolve(file), overlays: overlays.map((overlay) => resolve(overlay)), sets } }),
  };
}

/**
 * The changes since the last start of the run: settings, their text files, and parent runs. Raises ConfigError for an allowed key that is not a result
 * setting.
 */
export function changesSince(
  record: Recorded,
  settings: RunSettings,
  allowChanges: readonly string[],
): readonly SettingChange[] {
  const recorded = recordedSettings(record.settings);
  const known = new Map([recorded, settings].flatMap(listSettings).map(({ key, effect }) => [key, effect]));
  for (const { run } of dependencies(settings)) known.set(parentKey(run), 'result');
  for (const key of allowChanges) checkAllowed(key, known);
  return [...diffSettings(recorded, settings, record.texts), ...changedParents(record, settings)];
}

/**
 * The reason why a run does not match a config. Fast for equal settings. A run of this program's own trainer without a checkpoint matches any config.
 */
export function changedFrom(
  record: Recorded & Pick<RunRecord, 'hash'>,
  { settings, resultHash }: Pick<LoadedConfig, 'settings' | 'resultHash'>,
): readonly SettingChange[] {
  const changes = record.hash === resultHash ? changedParents(record, settings) : changesSince(record, settings, []);
  const begins = changes.length > 0 && isTrainable(settings) && !hasLearned(settings);
  return begins ? [] : changes;
}

function hasLearned({ base_exp_dir, run_name }: RunSettings): boolean {
  const paths = new RunPaths(base_exp_dir, run_name);
  return listCheckpoints(paths).length > 0 || readState(paths)?.state === 'finished';
}

type Recorded = Pick<RunRecord, 'settings' | 'texts' | 'parents'>;

function changedParents({ parents }: Recorded, settings: RunSettings): SettingChange[] {
  const runs = dependencies(settings).map(({ run }) => run);
  return parentChanges(settings.base_exp_dir, parents, runs);
}

function checkAllowed(key: string, known: ReadonlyMap<string, 'result' | 'operation'>): void {
  const effect = known.get(key);
  if (effect === 'result') return;
  if (effect === 'operation') {
    throw new ConfigError(`${key} does not affect results, so it may always change on resume`, {
      where: '--allow-changes',
      next: `Remove ${key} from --allow-changes.`,
    });
  }
  const names = [...known.keys()].filter((name) => known.get(name) === 'result');
  const below = names.filter((name) => name.startsWith(`${key}.`)).slice(0, 6);
  const close = below.length > 0 ? below.join(', ') : nearest(key, names);
  throw new ConfigError(`unknown setting '${key}'${close === null ? '' : `; did you mean ${close}?`}`, {
    where: '--allow-changes',
    next: '`editrl config show CONFIG --list` prints every setting. Separate several keys by commas.',
  });
}
