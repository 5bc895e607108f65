/** Probes the server that trains a run's policy, without a run. */
import { InternalError } from '../core/errors.js';
import type { RunResolver } from '../models/reference.js';
import type { TokenPrompt } from '../policies/tokens/batch.js';
import { type TokenFormat, FreeText } from '../policies/tokens/format.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';
import type { TrainerSettings } from '../schema/trainer.js';
import { checkServer, type ServerProbe } from '../train/served_trainer.js';
import { openRecipeOf } from './open.js';
import { openWords, type WordsOf } from './open_vocabulary.js';
import { isTrainable } from '../config/recipes.js';

type ServedSettings = Parameters<typeof checkServer>[0] & {
  readonly policy: WordsOf['policy'] & { readonly trainer: TrainerSettings };
};

/** Null if this machine trains. Raises ProbeError, EndpointError if the server stays away or refuses, and as opening the tokenizer does. */
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
    throw new InternalError('a server trains a policy without a tokenizer');
  });
  return new FreeText(tokenizer, new Set(ends));
}

/** Whether the settings are of a recipe that a server can train. */
function isServed(settings: RunSettings): settings is TrainedSettings & ServedSettings {
  if (!isTrainable(settings) || !('policy' in settings)) return false;
  return typeof settings.policy === 'object' && settings.policy !== null && 'trainer' in settings.policy;
}
