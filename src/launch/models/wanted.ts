/** The Hub models that runs need, as far as local files show. */
import { hubModels, type NamedHubModel } from '../../config/models.js';
import {
  cachedFolder,
  cachedModel,
  hubBaseOf,
  hubEnvironment,
  nameOf,
  type HubEnvironment,
} from '../../models/hub/cache.js';
import { notDownloaded, type RequestedModel } from '../../models/hub/fetch.js';
import { hubKey, type RunResolver } from '../../models/reference.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf } from '../../recipes/settings.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord, type RunRecord } from '../../run/record.js';
import { getPath, isObject } from '../../core/schema/walk.js';
import type { RunSettings } from '../../config/schema/run.js';
import type { WholeCheckpoint } from '../../run/checkpoints.js';
import { parentCheckpoint } from '../../run/claim/parents.js';
import { readState } from '../../run/state.js';

/** The models that a run needs, at the commits it started with. A run that starts over gets the current commits. */
export function wantedModels(settings: RunSettings, startsOver = false): RequestedModel[] {
  const named = [...hubModels(settings), ...basesOfFolders(settings)];
  if (named.length === 0) return [];
  const commits = pinnedCommits(settings, startsOver);
  const wholly = new Set(named.filter(({ tokenizerOnly }) => !tokenizerOnly).map(({ reference }) => hubKey(reference)));
  return named.map(({ reference }) => ({
    reference,
    need: wholly.has(hubKey(reference)) ? 'model' : 'tokenizer',
    pinned: commits[hubKey(reference)] ?? null,
  }));
}

/** The commits of Hub models that a run started with, including base models of adapters, by their names in its record. */
export function pinnedCommits(settings: RunSettings, startsOver = false): Readonly<Record<string, string>> {
  const record = startsOver ? null : readRecord(RunPaths.of(settings));
  return record?.models ?? {};
}

/** The base models of adapters that a run names by folder. */
function basesOfFolders(settings: RunSettings): NamedHubModel[] {
  if (settings.launch.command !== null || !isTrainable(settings)) return [];
  return recipeOf(settings).models.flatMap((key) => {
    const folder = getPath(settings, key);
    const reference = typeof folder === 'string' ? hubBaseOf(folder) : null;
    return reference === null ? [] : [{ key, reference, tokenizerOnly: false }];
  });
}

/** The Hub settings in the environment of a run's workers. */
export function hubEnvironmentOf({ launch: { env } }: RunSettings): HubEnvironment {
  return hubEnvironment({ ...process.env, ...env });
}

/** The models of a run that are not in the cache, by their names in messages. */
export function missingModels(settings: RunSettings): string[] {
  const wanted = wantedModels(settings);
  if (wanted.length === 0) return [];
  const environment = hubEnvironmentOf(settings);
  return wanted.flatMap(({ reference, need, pinned }) =>
    cachedModel(reference, need, pinned, environment) === null ? [nameOf(reference, pinned)] : [],
  );
}

/** Raises CheckpointError for a model that is not in the cache while the Hub is offline. */
export function checkOffline(wanted: RequestedModel, environment: HubEnvironment): void {
  const { reference, need, pinned } = wanted;
  if (!environment.offline || cachedModel(reference, need, pinned, environment) !== null) return;
  throw notDownloaded(wanted, environment.cacheDir);
}

/** The run that makes the model of a reward term, if it is not finished. */
export function unfinishedRun(term: object, baseExpDir: string): string | null {
  const model = 'model' in term ? term.model : null;
  if (!isObject(model) || typeof model['run'] !== 'string') return null;
  return readState(new RunPaths(baseExpDir, model['run']))?.state === 'finished' ? null : model['run'];
}

/** The models that a run started with, from its record. */
export type RecordedModels = Partial<Pick<RunRecord, 'parents' | 'models'>>;

/**
 * Finds the checkpoint of a run and the snapshot of a Hub model: the ones pinned in the record, else the newest whole checkpoint and the last queried
 * revision. `onUsed` is called for every use of a run. `environment`: the Hub settings with the cache.
 */
export function runResolver(
  baseExpDir: string,
  recorded: () => RecordedModels = () => ({}),
  onUsed: (run: string, checkpoint: WholeCheckpoint) => void = () => {},
  environment: HubEnvironment = hubEnvironment(),
): RunResolver {
  return (reference) => {
    const { parents = [], models = {} } = recorded();
    if ('hub' in reference) return cachedFolder(reference, models[hubKey(reference)] ?? null, environment);
    const whole = parentCheckpoint(baseExpDir, reference.run, parents);
    onUsed(reference.run, whole);
    return whole.dir;
  };
}
