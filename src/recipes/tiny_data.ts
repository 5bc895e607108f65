/** The tiny world that a recipe's data is made from, from the sections that ask for it. */
import { join } from 'node:path';
import type { TinyWorldSettings } from '../schema/data.js';
import type { ModelReference } from '../schema/model.js';

export interface TinyData {
  readonly world: TinyWorldSettings;
  /** The folder that it lies in, or will. */
  readonly folder: string;
  /** The model in whose codes samples are written, so that others cannot share their folder; null where they are written in none. */
  readonly codes: ModelReference | null;
}

interface DataSection {
  readonly dir: string;
  readonly tiny: TinyWorldSettings | null;
}

/** Null where the data is brought along. */
export function tinyDataOf({ dir, tiny }: DataSection, codes: ModelReference | null): TinyData | null {
  return tiny === null ? null : { world: tiny, folder: join(dir, tiny.folder), codes };
}
