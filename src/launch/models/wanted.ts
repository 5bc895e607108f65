/** The models of the Hub that runs need, as far as this machine's files tell. */
import { hubModels, type NamedHubModel } from '../../config/models.js';
import { cachedModel, hubBaseOf, nameOf } from '../../models/hub/cache.js';
import { hubEnvironment, type HubEnvironment } from '../../models/hub/environment.js';
import { notThere, type WantedModel } from '../../models/hub/fetch.js';
import { hubKey } from '../../models/reference.js';
import { isTrainable, recipeOf } from '../../recipes/settings.js';
import { RunPaths } from '../../run/paths.js';
import { readRecord } from '../../run/record.js';
import { getPath } from '../../schema/paths.js';
import type { RunSettings } from '../../schema/run.js';

/** The models that a run needs, of the commits that it began with. A run that begins `anew` takes what the Hub has now. */
export function wantedModels(settings: RunSettings, anew = false): WantedModel[] {
  const named = [...hubModels(settings), ...basesOfFolders(settings)];
  if (named.length === 0) return [];
  const commits = commitsBegunWith(settings, anew);
  const wholly = new Set(named.filter(({ tokenizerOnly }) => !tokenizerOnly).map(({ reference }) => hubKey(reference)));
  return named.map(({ reference }) => ({
    reference,
    need: wholly.has(hubKey(reference)) ? 'model' : 'tokenizer',
    pinned: commits[hubKey(reference)] ?? null,
  }));
}

/** The commits of models of the Hub that a run began with, those that its adapters stand on among them, as its record calls them. */
export function commitsBegunWith(settings: RunSettings, anew = false): Readonly<Record<string, string>> {
  const record = anew ? null : readRecord(RunPaths.of(settings));
  return record?.models ?? {};
}

/** What adapters stand on that a run names by their folders. */
function basesOfFolders(settings: RunSettings): NamedHubModel[] {
  if (settings.launch.command !== null || !isTrainable(settings)) return [];
  return recipeOf(settings).models.flatMap((key) => {
    const folder = getPath(settings, key);
    const reference = typeof folder === 'string' ? hubBaseOf(folder) : null;
    return reference === null ? [] : [{ key, reference, tokenizerOnly: false }];
  });
}

/** What the environment of a run's workers says of the Hub. */
export function hubEnvironmentOf({ launch: { env } }: RunSettings): HubEnvironment {
  return hubEnvironment({ ...process.env, ...env });
}

/** The models of a run that are not in the cache, as messages call them. */
export function notDownloaded(settings: RunSettings): string[] {
  const wanted = wantedModels(settings);
  if (wanted.length === 0) return [];
  const environment = hubEnvironmentOf(settings);
  return wanted.flatMap(({ reference, need, pinned }) =>
    cachedModel(reference, need, pinned, environment) === null ? [nameOf(reference, pinned)] : [],
  );
}

/** Raises CheckpointError for a model that is neither in the cache nor may be asked for. */
export function checkOffline(wanted: WantedModel, environment: HubEnvironment): void {
  const { reference, need, pinned } = wanted;
  if (!environment.offline || cachedModel(reference, need, pinned, environment) !== null) return;
  throw notThere(wanted, environment.cacheDir);
}
