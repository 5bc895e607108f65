/** From a model reference to the folder that it names. */
import { existsSync } from 'node:fs';
import { CheckpointError } from '../core/errors.js';
import type { ModelReference } from '../schema/model.js';

/** Finds the folder of a finished run's model. Given by whoever knows run directories. */
export type RunResolver = (run: string) => string;

/** The folder that a reference names. Raises CheckpointError where it is not there or cannot be loaded yet. */
export function modelFolder(reference: ModelReference, resolveRun: RunResolver): string {
  if (typeof reference === 'string') {
    if (!existsSync(reference)) {
      throw new CheckpointError('there is no such model folder', {
        where: reference,
        next: 'Check the path, or name a run: {run, config}.',
      });
    }
    return reference;
  }
  if ('run' in reference) return resolveRun(reference.run);
  throw new CheckpointError(`loading Hub models (${reference.hub}) is not available in this version`, {
    next: 'At laptop size add --with configs/lib/tiny.libsonnet, or name a local folder.',
  });
}
