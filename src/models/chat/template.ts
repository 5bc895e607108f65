/** Conversations as the text that a model was trained on: chat templates, rendered as transformers' `apply_chat_template` does. */
import { DataError, EditrlError } from '../../core/errors.js';
import { renderChat, renderChatNow, type Rendering } from './renderer.js';
import { parseTemplate } from './syntax.js';

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
      parseTemplate(source);
    } catch (cause) {
      throw new DataError(`the chat template cannot be parsed: ${(cause as Error).message}`, { where, cause });
    }
  }

  /**
   * A conversation's text. Rejects with DataError, with the template's own words, if the template fails or refuses, or needs more than 10 seconds or
   * 256 MB.
   */
  async render(messages: readonly Message[], options: RenderOptions): Promise<string> {
    try {
      return await renderChat(this.#rendering(messages, options));
    } catch (error) {
      throw this.#failure(error);
    }
  }

  /** As `render`, waiting for it in this thread, in a process for this rendering alone. */
  renderNow(messages: readonly Message[], options: RenderOptions): string {
    try {
      return renderChatNow(this.#rendering(messages, options));
    } catch (error) {
      throw this.#failure(error);
    }
  }

  #rendering(messages: readonly Message[], { addGenerationPrompt, variables = {} }: RenderOptions): Rendering {
    if (messages.length === 0) throw new DataError('a conversation has no messages', { where: this.where });
    const given = { tools: null, documents: null, add_generation_prompt: addGenerationPrompt };
    const names = { ...given, ...this.special, ...variables, messages };
    return { source: this.source, names, now: this.now().getTime() };
  }

  #failure(cause: unknown): unknown {
    if (!(cause instanceof Error) || cause instanceof EditrlError) return cause;
    return new DataError(`the chat template fails: ${cause.message}`, {
      where: this.where,
      next: 'Give messages that the template takes, or another template.',
      cause,
    });
  }
}
