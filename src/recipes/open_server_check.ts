/** Looks at the server that trains a run's policy, without a run. */
import { InternalError } from '../core/errors.js';
import type { RunResolver } from '../models/reference.js';
import { FreeText } from '../policies/tokens/free_text.js';
import type { Certificate } from '../run/certificate.js';
import type { RunSettings } from '../schema/run.js';
import type { TrainerSettings } from '../schema/trainer.js';
import { checkServer } from '../train/served_trainer.js';
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
  const { tokenizer, ends } = openWords({ ...settings, prompt: { chat: false } }, resolveRun, () => {
    throw new InternalError('a server trains a policy without a tokenizer');
  });
  return checkServer(settings, trainer, new FreeText(tokenizer, new Set(ends)), services);
}

/** Whether the settings are of a recipe that a server can train. */
function isServed(settings: RunSettings): settings is RunSettings & ServedSettings {
  if (!isTrainable(settings) || !('policy' in settings)) return false;
  return typeof settings.policy === 'object' && settings.policy !== null && 'trainer' in settings.policy;
}
