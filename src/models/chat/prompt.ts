/** Prompts as a model reads them: conversations through its template, and plain text. */
import { DataError } from '../../core/errors.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import type { ChatTemplate, Message, RenderOptions } from './template.js';

/** A model's tokenizer with its template; null where the model has none. */
export interface Reader {
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate | null;
}

/**
 * A prompt's text, and whether the tokenizer adds its own tokens around it: plain text is used as it is, messages are written by the template.
 * `prefill` is the text that the answer is made to begin with. Rejects with DataError if there is no template for messages, or if it fails.
 */
export async function promptText(
  { template }: Pick<Reader, 'template'>,
  prompt: string | readonly Message[],
  options: RenderOptions = { addGenerationPrompt: true },
  prefill = '',
): Promise<{ readonly text: string; readonly addSpecial: boolean }> {
  if (typeof prompt === 'string') return { text: `${prompt}${prefill}`, addSpecial: true };
  if (template === null) {
    throw new DataError('the prompt is a list of messages, and the model has no chat template', {
      next: 'Add chat_template.jinja to its folder (or chat_template to tokenizer_config.json), or give prompts as plain text.',
    });
  }
  return { text: `${await template.render(prompt, options)}${prefill}`, addSpecial: false };
}

/** The ids of a prompt's text. Raises as `promptText`. */
export async function encodePrompt(
  reader: Reader,
  prompt: string | readonly Message[],
  options?: RenderOptions,
  prefill?: string,
): Promise<readonly number[]> {
  const { text, addSpecial } = await promptText(reader, prompt, options, prefill);
  return reader.tokenizer.encode(text, { addSpecial });
}
