/** Resolves models of other runs and of the Hub to folders. */
import { type HubEnvironment, cachedFolder, hubEnvironment } from '../../models/hub/cache.js';
import { hubKey, type RunResolver } from '../../models/reference.js';
import type { WholeCheckpoint } from '../../run/checkpoints.js';
import { RunPaths } from '../../run/paths.js';
import { parentCheckpoint } from '../../run/parents.js';
import type { RunRecord } from '../../run/record.js';
import { readState } from '../../run/state.js';
import { isObject } from '../../schema/walk.js';

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
