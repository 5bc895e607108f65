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
 * The ids of a prompt: of plain text with the tokens that the tokenizer puts around it, of messages what the template writes, with nothing
 * added. `prefill` is what the answer is made to begin with. Raises DataError where there is no template for messages, or it fails.
 */
export async function encodePrompt(
  { tokenizer, template }: Reader,
  prompt: string | readonly Message[],
  options: RenderOptions = { addGenerationPrompt: true },
  prefill = '',
): Promise<readonly number[]> {
  if (typeof prompt === 'string') return tokenizer.encode(`${prompt}${prefill}`, { addSpecial: true });
  if (template === null) {
    throw new DataError('the prompt is a list of messages, and the model has no chat template', {
      next: 'Add chat_template.jinja to its folder (or chat_template to tokenizer_config.json), or give prompts as plain text.',
    });
  }
  return tokenizer.encode(`${template.render(prompt, options)}${prefill}`, { addSpecial: false });
}
