/**
 * All recipes that editrl trains, with their code for workers. To add a recipe, add one line here and one in
 * settings.ts.
 */
import { must, InternalError } from '../core/errors.js';
import { resolveProvider } from '../compute/onnx/provider.js';
import type { TrainedSettings, RunSettings } from '../config/schema/run.js';
import type { OpenRecipe } from './recipe.js';
import type { OpenedRecipe } from '../train/worker.js';
import { editResponse } from './edit_response/open.js';
import { imageEditor } from './image_editor/open.js';
import { imageTextEncoder, imageAutoencoder, imageTokenizer, textToImage } from './pretraining/open.js';
import { enginesOf, withEngines, recipeOf, type TrainedName } from './settings.js';
import { imageEditTokens } from './image_edit_tokens/open.js';
import { ipAdapter } from './ip_adapter/open.js';
import { promptEnhance } from './prompt_enhance/open.js';
import { textAnswers } from './text_answers/open.js';
import { videoActions } from './video_actions/open.js';
import type { RunResolver } from '../models/reference.js';
import type { TokenPrompt } from '../models/tokenizer/format.js';
import { FreeText, type TokenFormat } from '../models/tokenizer/format.js';
import type { TrainerSettings } from '../config/schema/trainer.js';
import { checkServer, type ServerProbe } from '../train/remote/served_trainer.js';
import { openWords, type WordsOf } from './shared/words/vocabulary.js';
import { isTrainable } from '../config/recipes.js';

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

/**
 * A run's recipe for the training loop. Opening it raises EngineError when this machine lacks an engine that the run
 * needs.
 */
export function recipeOpening(settings: TrainedSettings): OpenedRecipe {
  return {
    columns: recipeOf(settings).columns(settings),
    open: async (context) => {
      const providers = enginesOf(settings).map(({ provider }) => provider);
      const found = new Map(
        await Promise.all(providers.map(async (one) => [one, await resolveProvider(one)] as const)),
      );
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

type ServedSettings = Parameters<typeof checkServer>[0] & {
  readonly policy: WordsOf['policy'] & { readonly trainer: TrainerSettings };
};

/**
 * The probe of a run's training server. Null if this machine trains. Raises ProbeError, EndpointError if the server
 * stays unreachable or rejects the request, and the errors of opening the tokenizer.
 */
export async function probeFor(
  settings: RunSettings,
  resolveRun: RunResolver,
  services: Parameters<typeof checkServer>[3],
): Promise<ServerProbe | null> {
  if (!isServed(settings)) return null;
  const { trainer } = settings.policy;
  if (trainer.type !== 'tinker') return null;
  const recipe = openRecipeOf(settings);
  const format = recipe.servedFormat?.(settings, resolveRun) ?? wordsOf(settings, resolveRun);
  return checkServer(settings, trainer, format, services);
}

function wordsOf(settings: ServedSettings, resolveRun: RunResolver): TokenFormat<TokenPrompt> {
  const { tokenizer, ends } = openWords({ ...settings, prompt: { chat: false } }, resolveRun, () => {
    throw new InternalError('a server trains a policy that has no tokenizer');
  });
  return new FreeText(tokenizer, new Set(ends));
}

/** Whether the settings belong to a recipe that a server can train. */
function isServed(settings: RunSettings): settings is TrainedSettings & ServedSettings {
  if (!isTrainable(settings) || !('policy' in settings)) return false;
  return typeof settings.policy === 'object' && settings.policy !== null && 'trainer' in settings.policy;
}
