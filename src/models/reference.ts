/** From a model reference to the folder that it names. */
import { existsSync } from 'node:fs';
import { CheckpointError } from '../core/errors.js';
import type { HubReference, ModelReference, RunReference } from '../schema/model.js';

/**
 * Finds the folder of what is no path: a finished run's model, and a model of the Hub in the cache. Given by whoever knows run directories, and which
 * commits a run began with.
 */
export type RunResolver = (reference: RunReference | HubReference) => string;

/** The folder that a reference names. Raises CheckpointError where it is not there. */
export function modelFolder(reference: ModelReference, resolve: RunResolver): string {
  if (typeof reference !== 'string') return resolve(reference);
  if (existsSync(reference)) return reference;
  throw new CheckpointError('there is no such model folder', {
    where: reference,
    next: 'Check the path, or name a run: {run, config}, or a model of the Hub: {hub}.',
  });
}

/** What a run's record calls a model of the Hub. */
export function hubKey({ hub, revision }: HubReference): string {
  return `${hub}@${revision}`;
}
