/** Every recipe, as configs, planning and launching need it. */
import { InternalError } from '../core/errors.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';
import { editResponse } from './edit_response/settings.js';
import { imageEditor } from './image_editor/settings.js';
import { imageTextEncoder } from './image_text_encoder/settings.js';
import { external } from './external/settings.js';
import { imageAutoencoder } from './image_autoencoder/settings.js';
import { imageEditTokens } from './image_edit_tokens/settings.js';
import { imageTokenizer } from './image_tokenizer/settings.js';
import { ipAdapter } from './ip_adapter/settings.js';
import { promptEnhance } from './prompt_enhance/settings.js';
import { textAnswers } from './text_answers/settings.js';
import { textToImage } from './text_to_image/settings.js';
import { videoActions } from './video_actions/settings.js';
import type { Recipe, TrainedRecipe } from './recipe.js';

/** By the name in a config's `task`. To add a recipe, add a folder beside this file, one line here and one in open.ts. */
export const recipes = {
  image_edit_tokens: imageEditTokens,
  image_tokenizer: imageTokenizer,
  image_autoencoder: imageAutoencoder,
  text_answers: textAnswers,
  edit_response: editResponse,
  video_actions: videoActions,
  ip_adapter: ipAdapter,
  prompt_enhance: promptEnhance,
  text_to_image: textToImage,
  image_text_encoder: imageTextEncoder,
  image_editor: imageEditor,
  external,
} as const satisfies Readonly<Record<string, Recipe>>;

const byName: ReadonlyMap<unknown, Recipe> = new Map<string, Recipe>(Object.entries(recipes));

export const recipeNames: readonly string[] = Object.keys(recipes);
/** The recipes that this program trains. */
export type TrainedName = {
  [Name in keyof typeof recipes]: (typeof recipes)[Name] extends { readonly trainer: 'this program' } ? Name : never;
}[keyof typeof recipes];

/** The recipe that a config's `task` names, whatever its type; undefined if there is none. */
export function recipeNamed(task: unknown): Recipe | undefined {
  return byName.get(task);
}

/** The recipe of valid settings. */
export function recipeOf(settings: TrainedSettings): TrainedRecipe;
export function recipeOf(settings: Pick<RunSettings, 'task'>): Recipe;
export function recipeOf({ task }: Pick<RunSettings, 'task'>): Recipe {
  const recipe = byName.get(task);
  if (recipe === undefined) throw new InternalError(`settings of no known recipe: ${task}`);
  return recipe;
}

/** What scores a run's episodes; null if nothing does. */
export function rewardOf(settings: RunSettings): RewardSettings | null {
  return isTrainable(settings) ? recipeOf(settings).reward(settings) : null;
}

/** Whether this program's workers can train it. */
export function isTrainable(settings: RunSettings): settings is TrainedSettings {
  return recipeOf(settings).trainer === 'this program';
}
