/** The experiments that sweeps have recorded, read again when a record's file changes. */
import { LRUCache } from 'lru-cache';
import { EditrlError } from '../core/errors.js';
import { experimentFile, readExperiment, type ExperimentRecord } from '../run/experiment.js';
import { stampOf } from './stamps.js';

/** Number of cached records: those of large matrices have megabytes. */
const MOST_CACHED = 200;

interface CachedRecord {
  readonly stamp: string;
  readonly record: ExperimentRecord | null;
}

export class ExperimentRecords {
  readonly #known = new LRUCache<string, CachedRecord>({ max: MOST_CACHED });

  /** Null for a record that does not exist or that another version wrote. */
  get(folder: string, name: string): ExperimentRecord | null {
    const path = experimentFile(folder, name);
    const stamp = stampOf(path);
    const known = this.#known.get(path);
    if (known?.stamp === stamp) return known.record;
    const record = recordOf(folder, name);
    this.#known.set(path, { stamp, record });
    return record;
  }
}

function recordOf(folder: string, name: string): ExperimentRecord | null {
  try {
    return readExperiment(folder, name);
  } catch (error) {
    if (error instanceof EditrlError) return null;
    throw error;
  }
}
