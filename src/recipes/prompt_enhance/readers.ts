/** The models that read a prompt's words after the policy, and cut what is too long for them: known without running any model. */
import { CheckpointError, ConfigError } from '../../core/errors.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { textReader } from '../../rewards/terms/clip/model.js';
import type { ModelReference } from '../../schema/model.js';
import { encoderOf } from './open.js';
import type { PromptEnhanceSettings } from './settings.js';

/** Number of tokens cut from the end of a text. */
export type CountUnread = (text: string) => number | Promise<number>;

export interface Readers {
  /** Tokens of a rewrite that the image model cuts; null if unknown, as for a server. */
  readonly rewrite: CountUnread | null;
  /** Tokens of the user's own words that the CLIP comparing pictures with them cuts; null if no CLIP does. */
  readonly prompt: CountUnread | null;
  /** What could not be opened, and is therefore unknown. */
  readonly problems: readonly string[];
}

export const NO_READERS: Readers = { rewrite: null, prompt: null, problems: [] };

/** The readers of a run. A model that no longer exists is a problem but not an error: rewriting works without it. */
export function readersOf({ environment, reward }: PromptEnhanceSettings, resolveRun: RunResolver): Readers {
  const problems: string[] = [];
  const opened = (what: string, open: () => CountUnread): CountUnread | null => {
    try {
      return open();
    } catch (error) {
      if (!(error instanceof CheckpointError || error instanceof ConfigError)) throw error;
      problems.push(`how much ${what} reads is not known: ${error.where ?? ''}: ${error.message}`);
      return null;
    }
  };
  const clip = reward.terms.find(({ name }) => name === 'clip');
  return {
    rewrite:
      environment.type === 'model'
        ? opened('the image model', () => {
            const encoder = encoderOf(environment, modelFolder(environment.model, resolveRun), resolveRun);
            return (text) => encoder.unread(text);
          })
        : null,
    prompt:
      clip === undefined
        ? null
        : opened('clip', () => {
            const tokenizer = textReader(modelFolder((clip as { model: ModelReference }).model, resolveRun));
            return (text) => tokenizer.unread(text);
          }),
    problems,
  };
}
