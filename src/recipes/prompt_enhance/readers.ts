/** What reads the words of a prompt after the policy, and leaves out what is too long for it: known of a run without running any model. */
import { CheckpointError, ConfigError } from '../../core/errors.js';
import { modelFolder, type RunResolver } from '../../models/reference.js';
import { clipTokenizer } from '../../rewards/terms/clip/model.js';
import type { ModelReference } from '../../schema/model.js';
import { encoderOf } from './open.js';
import type { PromptEnhanceSettings } from './settings.js';

/** How many tokens at the end of a text are left out. */
export type Unread = (text: string) => number | Promise<number>;

export interface Readers {
  /** Of a rewrite, by the image model; null where nobody says, such as a server. */
  readonly rewrite: Unread | null;
  /** Of the user's own words, by the CLIP that compares pictures with them; null where none does. */
  readonly prompt: Unread | null;
  /** What could not be opened, and so is not known. */
  readonly problems: readonly string[];
}

export const NO_READERS: Readers = { rewrite: null, prompt: null, problems: [] };

/** Those of a run. A model that is not here any more is a problem and no error: rewriting does without it. */
export function readersOf({ environment, reward }: PromptEnhanceSettings, resolveRun: RunResolver): Readers {
  const problems: string[] = [];
  const opened = (what: string, open: () => Unread): Unread | null => {
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
            const tokenizer = clipTokenizer(modelFolder((clip as { model: ModelReference }).model, resolveRun));
            return (text) => tokenizer.unread(text);
          }),
    problems,
  };
}
