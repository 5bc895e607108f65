/** All recipes, for configs, planning and launching. Importing this file registers them. */
import { isTrainable, recipeOf as configRecipeOf, registerRecipes, type NamedModel } from '../config/recipes.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import { decidingTerms, measuredTerms, recordedTerms, termName } from '../rewards/score/choice.js';
import {
  canonicalMeasure,
  canonicalMode,
  canonicalTerms,
  measureTerms,
  type MeasureTerm,
} from '../rewards/score/settings.js';
import { moduleDigest } from '../rewards/terms/module/digest.js';
import type { HubReference, RunReference, EngineSettings } from '../config/schema/model.js';
import type { RunSettings, TrainedSettings } from '../config/schema/run.js';
import { promptsPerIteration } from '../config/schema/training.js';
import { isObject, getPath, setPath } from '../core/schema/walk.js';
import { editResponse } from './edit_response/settings.js';
import { imageEditor } from './image_editor/settings.js';
import { imageTextEncoder, imageAutoencoder, imageTokenizer, textToImage } from './pretraining/settings.js';
import { external } from './external/settings.js';
import { imageEditTokens } from './image_edit_tokens/settings.js';
import { ipAdapter } from './ip_adapter/settings.js';
import { promptEnhance } from './prompt_enhance/settings.js';
import { textAnswers } from './text_answers/settings.js';
import { videoActions } from './video_actions/settings.js';
import type { Recipe, TrainedRecipe } from './recipe.js';

/**
 * Recipes by the name in a config's `task`. To add one, add a folder beside this file, one line here and one in
 * open.ts.
 */
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

/** The recipes that editrl trains. */
export type TrainedName = {
  [Name in keyof typeof recipes]: (typeof recipes)[Name] extends { readonly trainer: 'this program' } ? Name : never;
}[keyof typeof recipes];

/** The recipe of settings that editrl trains. */
export function recipeOf(settings: TrainedSettings): TrainedRecipe {
  return configRecipeOf(settings) as TrainedRecipe;
}

/** The reward of a run. Null if nothing is scored. */
export function rewardOf(settings: RunSettings): RewardSettings | null {
  return isTrainable(settings) ? recipeOf(settings).reward(settings) : null;
}

/** The models of the reward's terms. A text is a folder or the name of a judge's model. */
function termModels(settings: TrainedSettings): NamedModel[] {
  const reward = rewardOf(settings);
  if (reward === null) return [];
  const key = reward.terms.length > 0 ? 'reward.terms' : 'reward.mode';
  const terms = [
    ...decidingTerms(reward).map((term) => ({ ...term, key })),
    ...recordedTerms(reward).map((term) => ({ ...term, key: 'reward.also_compute' })),
    ...measuredTerms(reward).map((term) => ({ ...term, key: 'validation.measure' })),
  ];
  return terms.flatMap(({ key, kind, fields: { model } }) =>
    isObject(model)
      ? [{ key: `${key}, ${kind.name}`, reference: model as unknown as RunReference | HubReference }]
      : [],
  );
}

registerRecipes({
  recipes,
  flat: imageEditTokens,
  rewards: {
    canonicalMode,
    canonicalTerms,
    canonicalMeasure,
    measures: measureTerms,
    settingsOf: rewardOf,
    metricOf: (measure) => termName(measure as MeasureTerm),
    modelsOf: termModels,
    moduleDigest,
  },
  module: import.meta.url,
});

/** Prompts of one iteration of a run that learns from rewards. 0 for a run that samples nothing. */
export function plannedPrompts(settings: TrainedSettings): number {
  const rollout = getPath(settings, 'rollout') as Parameters<typeof promptsPerIteration>[0] | undefined;
  return rollout === undefined ? 0 : promptsPerIteration(rollout);
}

/** The engines of a run. The first one runs the trained model. */
export function enginesOf(settings: TrainedSettings): EngineSettings[] {
  return engineKeys(settings).map((key) => getPath(settings, key) as EngineSettings);
}

/** Dotted keys of the engine sections. A model on a server has none. */
export function engineKeys(settings: TrainedSettings): string[] {
  return recipeOf(settings).engines.filter((key) => getPath(settings, key) !== undefined);
}

/** The same settings with every engine changed. */
export function withEngines<S extends TrainedSettings>(
  settings: S,
  change: (engine: EngineSettings, key: string) => EngineSettings,
): S {
  const changed = structuredClone(settings);
  for (const key of engineKeys(settings)) {
    setPath(changed, key, change(getPath(settings, key) as EngineSettings, key));
  }
  return changed;
}
