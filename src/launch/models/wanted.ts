/** The Hub's models that runs need, as far as this machine's files tell. */
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

/** The models that a run needs, at the commits it began with. A run that starts over takes what the Hub has now. */
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

/** The commits of Hub models that a run began with, including those of adapters' bases, under their names in its record. */
export function pinnedCommits(settings: RunSettings, startsOver = false): Readonly<Record<string, string>> {
  const record = startsOver ? null : readRecord(RunPaths.of(settings));
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
export function checkOffline(wanted: RequestedModel, environment: HubEnvironment): void {
  const { reference, need, pinned } = wanted;
  if (!environment.offline || cachedModel(reference, need, pinned, environment) !== null) return;
  throw notDownloaded(wanted, environment.cacheDir);
}

/** The run that a reward term takes its model from, if it is not finished. */
export function unfinishedRun(term: object, baseExpDir: string): string | null {
  const model = 'model' in term ? term.model : null;
  if (!isObject(model) || typeof model['run'] !== 'string') return null;
  return readState(new RunPaths(baseExpDir, model['run']))?.state === 'finished' ? null : model['run'];
}

/** What a run's record says about the models it began with. */
export type RecordedModels = Partial<Pick<RunRecord, 'parents' | 'models'>>;

/**
 * Finds the checkpoint of a finished run that is used, and the snapshot of a Hub model: those pinned in the record, else the newest whole checkpoint,
 * and the revision as last queried. `onUsed` is called for every use of a run. `environment` says where the cache is; outside of a run's workers,
 * that is their environment.
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
