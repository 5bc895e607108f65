/** The Hub's models that runs need, as far as this machine's files tell. */
import { hubModels, type NamedHubModel } from '../../config/models.js';
import { type HubEnvironment, cachedModel, hubBaseOf, hubEnvironment, nameOf } from '../../models/hub/cache.js';
import { notThere, type WantedModel } from '../../models/hub/fetch.js';
import { hubKey } from '../../models/reference.js';
import { isTrainable } from '../../config/recipes.js';
import { recipeOf } from '../../recipes/settings.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { getPath } from '../../schema/walk.js';
import type { RunSettings } from '../../schema/run.js';

/** The models that a run needs, at the commits it began with. A run that begins `anew` takes what the Hub has now. */
export function wantedModels(settings: RunSettings, anew = false): WantedModel[] {
  const named = [...hubModels(settings), ...basesOfFolders(settings)];
  if (named.length === 0) return [];
  const commits = pinnedCommits(settings, anew);
  const wholly = new Set(named.filter(({ tokenizerOnly }) => !tokenizerOnly).map(({ reference }) => hubKey(reference)));
  return named.map(({ reference }) => ({
    reference,
    need: wholly.has(hubKey(reference)) ? 'model' : 'tokenizer',
    pinned: commits[hubKey(reference)] ?? null,
  }));
}

/** The commits of Hub models that a run began with, including those of adapters' bases, under their names in its record. */
export function pinnedCommits(settings: RunSettings, anew = false): Readonly<Record<string, string>> {
  const record = anew ? null : readRecord(RunPaths.of(settings));
  return record?.models ?? {};
}

/** The bases of adapters that a run names by folder. */
function basesOfFolders(settings: RunSettings): NamedHubModel[] {
  if (settings.launch.command !== null || !isTrainable(settings)) return [];
  return recipeOf(settings).models.flatMap((key) => {
    const folder = getPath(settings, key);
    const reference = typeof folder === 'string' ? hubBaseOf(folder) : null;
    return reference === null ? [] : [{ key, reference, tokenizerOnly: false }];
  });
}

/** Settings of the Hub in the environment of a run's workers. */
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

/** Raises CheckpointError for a model that is not in the cache and may not be requested. */
export function checkOffline(wanted: WantedModel, environment: HubEnvironment): void {
  const { reference, need, pinned } = wanted;
  if (!environment.offline || cachedModel(reference, need, pinned, environment) !== null) return;
  throw notThere(wanted, environment.cacheDir);
}
