/** Every recipe that this program trains, as its workers need it. To add a recipe, add one line here and one in settings.ts. */
import { must } from '../core/errors.js';
import { resolveProvider } from '../engines/onnx/provider.js';
import type { TrainedSettings } from '../schema/run.js';
import type { OpenRecipe } from '../train/opener.js';
import type { OpenedRecipe } from '../train/worker.js';
import { editResponse } from './edit_response/open.js';
import { imageEditor } from './image_editor/open.js';
import { imageTextEncoder } from './image_text_encoder/open.js';
import { enginesOf, withEngines } from './engines.js';
import { imageAutoencoder } from './image_autoencoder/open.js';
import { imageEditTokens } from './image_edit_tokens/open.js';
import { imageTokenizer } from './image_tokenizer/open.js';
import { ipAdapter } from './ip_adapter/open.js';
import { promptEnhance } from './prompt_enhance/open.js';
import { textAnswers } from './text_answers/open.js';
import { textToImage } from './text_to_image/open.js';
import { videoActions } from './video_actions/open.js';
import { recipeOf, type TrainedName } from './settings.js';

const recipes: Readonly<Record<TrainedName, OpenRecipe>> = {
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
};

/** A run's recipe for the loop. Opening it raises EngineError when this machine lacks what its engines need. */
export function recipeOpening(settings: TrainedSettings): OpenedRecipe {
  return {
    columns: recipeOf(settings).columns(settings),
    open: async (context) => {
      const asked = enginesOf(settings).map(({ provider }) => provider);
      const found = new Map(await Promise.all(asked.map(async (one) => [one, await resolveProvider(one)] as const)));
      const resolved = withEngines(settings, (engine) => {
        return { ...engine, provider: must(found.get(engine.provider), 'a provider') };
      });
      return openRecipeOf(settings).open(resolved, context);
    },
  };
}

export function openRecipeOf({ task }: TrainedSettings): OpenRecipe {
  return recipes[task as TrainedName];
}
