/** Looks at the server that trains a run's policy, without a run. */
import { InternalError } from '../core/errors.js';
import type { RunResolver } from '../models/reference.js';
import type { TokenPrompt } from '../policies/tokens/batch.js';
import type { TokenFormat } from '../policies/tokens/format.js';
import { FreeText } from '../policies/tokens/free_text.js';
import type { Certificate } from '../run/certificate.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';
import type { TrainerSettings } from '../schema/trainer.js';
import { checkServer } from '../train/served_trainer.js';
import { openRecipeOf } from './open.js';
import { openWords, type WordsOf } from './open_vocabulary.js';
import { isTrainable } from './settings.js';

type ServedSettings = Parameters<typeof checkServer>[0] & {
  readonly policy: WordsOf['policy'] & { readonly trainer: TrainerSettings };
};

/**
 * What its server is found to compute; null where this machine trains. Raises EndpointError where the server stays away or refuses, and as opening the
 * tokenizer does.
 */
export async function certificateFor(
  settings: RunSettings,
  resolveRun: RunResolver,
  services: Parameters<typeof checkServer>[3],
): Promise<Certificate | null> {
  if (!isServed(settings)) return null;
  const { trainer } = settings.policy;
  if (trainer.type !== 'tinker') return null;
  const recipe = openRecipeOf(settings);
  const format = recipe.servedFormat?.(settings, resolveRun) ?? wordsOf(settings, resolveRun);
  const sight = recipe.servedSight?.(settings, resolveRun) ?? null;
  return checkServer(settings, trainer, { format, sight }, services);
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
