/** Conversations as the text that a model was trained on: chat templates, rendered as transformers' `apply_chat_template` does. */
import { DataError } from '../../core/errors.js';
import { Evaluation, Scope } from './jinja/evaluate.js';
import { globals } from './jinja/globals.js';
import { parseTemplate, type Statement } from './jinja/syntax.js';
import { fromJson, isDict, str, TemplateFailure, type Value } from './jinja/values.js';

/** A message's content: text, or parts of which those of type `text` hold text. */
export type MessageContent = string | readonly { readonly type: string; readonly text?: string }[];

export interface Message {
  readonly role: string;
  readonly content: MessageContent;
}

export interface RenderOptions {
  /** Whether the assistant's turn is begun, so that the model goes on with its answer. */
  readonly addGenerationPrompt: boolean;
  /** Further names for the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

export class ChatTemplate {
  readonly #body: readonly Statement[];

  /**
   * `special` are the tokenizer's special tokens by name (`bos_token`, …), which templates print. Raises DataError, naming `where`, for a
   * template that cannot be parsed.
   */
  constructor(
    readonly source: string,
    readonly where: string,
    readonly special: Readonly<Record<string, string>>,
    readonly now: () => Date = () => new Date(),
  ) {
    try {
      this.#body = parseTemplate(source);
    } catch (cause) {
      throw new DataError(`the chat template cannot be parsed: ${(cause as Error).message}`, { where, cause });
    }
  }

  /** Raises DataError, with the message that was being rendered and the template's own words, if the template fails or refuses. */
  render(messages: readonly Message[], { addGenerationPrompt, variables = {} }: RenderOptions): string {
    if (messages.length === 0) throw new DataError('a conversation has no messages', { where: this.where });
    const conversation = messages.map(fromJson);
    const met: Value[] = [];
    const evaluation = new Evaluation((item) => {
      if (conversation.includes(item)) met.push(item);
    });
    const names = {
      tools: null,
      documents: null,
      add_generation_prompt: addGenerationPrompt,
      ...this.special,
      ...variables,
    };
    const given = Object.entries(names).map(([name, value]) => [name, fromJson(value)] as const);
    const scope = new Scope([...globals(this.now), ...given, ['messages', conversation]]);
    try {
      return evaluation.render(this.#body, scope);
    } catch (cause) {
      // A macro that calls itself without end, or words longer than any text may be.
      if (!(cause instanceof TemplateFailure || cause instanceof RangeError)) throw cause;
      const at = met.at(-1);
      const place =
        at !== undefined && isDict(at)
          ? ` at message ${conversation.indexOf(at) + 1} (${str(at.get('role') ?? null)})`
          : '';
      throw new DataError(`the chat template fails${place}: ${cause.message}`, {
        where: this.where,
        next: 'Give messages that the template takes, or another template.',
        cause,
      });
    }
  }
}
