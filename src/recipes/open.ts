/** Every recipe that this program trains, as far as its workers must know it. */
import type { RunResolver } from '../models/reference.js';
import type { TrainedSettings } from '../schema/run.js';
import { makeData as makeEdits } from './image_edit_tokens/data.js';
import { makeData as makeImages } from './image_tokenizer/data.js';
import type { TrainedName } from './settings.js';

export interface OpenRecipe {
  /** Makes data that a config asks for and that is not there yet, from the finished runs that this needs. */
  makeData(settings: TrainedSettings, resolveRun: RunResolver, say: (line: string) => void): Promise<void>;
}

const recipes: Readonly<Record<TrainedName, OpenRecipe>> = {
  image_edit_tokens: { makeData: makeEdits },
  image_tokenizer: { makeData: makeImages },
};

export function openRecipeOf({ task }: TrainedSettings): OpenRecipe {
  return recipes[task as TrainedName];
}
