/** From a model reference to the folder that it names. */
import { existsSync } from 'node:fs';
import { CheckpointError } from '../core/errors.js';

/** A model of the Hub at a branch, a tag or a commit. */
export interface HubReference {
  readonly hub: string;
  readonly revision: string;
}

/** The model of a run, and the config that makes it. */
export interface RunReference {
  readonly run: string;
  readonly config: string;
}

/** A model in a config: a folder, or one of these references. */
export type ModelReference = string | HubReference | RunReference;

/**
 * Finds the folder of a reference that is not a path: a finished run's model, or a cached Hub model. The caller
 * provides it, because it has the run directories and the commits at the start of a run.
 */
export type RunResolver = (reference: RunReference | HubReference) => string;

export const HOW_TO_NAME_MODELS = 'Check the path, or name a run: {run, config}, or a model of the Hub: {hub}.';

/** The folder that a reference names. Raises CheckpointError if it does not exist. */
export function modelFolder(reference: ModelReference, resolve: RunResolver): string {
  if (typeof reference !== 'string') return resolve(reference);
  if (existsSync(reference)) return reference;
  throw new CheckpointError('there is no such model folder', {
    where: reference,
    next: HOW_TO_NAME_MODELS,
  });
}

/** The name of a Hub model in a run's record. */
export function hubKey({ hub, revision }: HubReference): string {
  return `${hub}@${revision}`;
}
