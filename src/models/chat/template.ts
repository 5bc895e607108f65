/** Conversations as the text that a model was trained on: chat templates, rendered as transformers' `apply_chat_template` does. */
import { spawnSync } from 'node:child_process';
import { ChildEnded, ChildService } from '../../core/child_service.js';
import { DataError, EditrlError, EngineError } from '../../core/errors.js';
import { programPath } from '../../core/files.js';
import type { Tokenizer } from '../tokenizer/tokenizer.js';
import { parseTemplate } from './syntax.js';

/** A message's content: a string, or a list of parts. Parts of type `text` have a `text`. */
export type MessageContent = string | readonly { readonly type: string; readonly text?: string }[];

export interface Message {
  readonly role: string;
  readonly content: MessageContent;
}

export interface RenderOptions {
  /** Whether to open the assistant's turn, so that the model continues with its answer. */
  readonly addGenerationPrompt: boolean;
  /** Further names for the template, such as `enable_thinking`. */
  readonly variables?: Readonly<Record<string, unknown>>;
}

export class ChatTemplate {
  /**
   * `special` are the tokenizer's special tokens by name (`bos_token`, …), which templates print. Raises DataError,
   * naming `where`, for a template that cannot be parsed.
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
   * A conversation's text. Rejects with DataError, with the template's own words, if the template fails or refuses, or
   * needs more than 10 seconds or 256 MB.
   */
  async render(messages: readonly Message[], options: RenderOptions): Promise<string> {
    try {
      return await renderChat(this.#rendering(messages, options));
    } catch (error) {
      throw this.#failure(error);
    }
  }

  /** Like `render`, but blocks this thread and starts a process for this rendering. */
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
      next: 'Give messages that the template accepts, or another template.',
      cause,
    });
  }
}

/** A request to the process, which answers with one `FromRenderer`. */
export type ToRenderer = {
  readonly source: string;
  /** The template's names and their values, as JSON. */
  readonly names: Readonly<Record<string, unknown>>;
  /** The time that the template sees, in milliseconds since 1970. */
  readonly now: number;
  readonly withinMs: number;
};

/** `withinMs` is 10,000 by default. */
export type Rendering = Omit<ToRenderer, 'withinMs'> & Partial<ToRenderer>;

export type FromRenderer =
  | { readonly kind: 'text'; readonly text: string }
  /** The template, or its evaluation, refuses. */
  | { readonly kind: 'failed'; readonly words: string }
  | { readonly kind: 'late' };

/** A conversation takes one or two milliseconds. */
const WITHIN_MS = 10_000;
const MAX_MB = 256;
const limits = [`--max-old-space-size=${MAX_MB}`, '--max-semi-space-size=16'];

const program = programPath('models/chat/render_main');
/** One process for all templates. V8 prints long reports about a full heap, which are suppressed. */
const renderer = new ChildService<ToRenderer, FromRenderer>(program, {
  execArgv: limits,
  stderr: 'ignore',
  idleMs: 60_000,
});

function textOf(reply: FromRenderer, { withinMs }: ToRenderer): string {
  if (reply.kind === 'late') throw new Error(`it takes longer than ${withinMs / 1000} seconds`);
  if (reply.kind === 'failed') throw new Error(reply.words);
  return reply.text;
}

/** V8 aborts a process whose heap is full. */
function endOf(how: string): Error {
  if (['SIGABRT', 'SIGTRAP', 'exit code 134'].includes(how)) {
    return new Error(`it needs more than ${MAX_MB} MB of memory`);
  }
  return new EngineError(`the process that renders chat templates ended (${how})`, {
    next: 'Run the same command again. If it happens again, check whether memory runs out.',
  });
}

/** Renders a template. Rejects with an Error in the template's words, or with EngineError if the process is killed. */
export async function renderChat(template: Rendering): Promise<string> {
  const message = { withinMs: WITHIN_MS, ...template };
  try {
    // The process itself stops a slow rendering. This limit includes its start.
    return textOf(await renderer.ask(message, 2 * message.withinMs + WITHIN_MS), message);
  } catch (error) {
    throw error instanceof ChildEnded ? endOf(error.how) : error;
  }
}

/** Like `renderChat`, in a process of its own. Used by the blocking check before a start. */
export function renderChatNow(template: Rendering): string {
  const message = { withinMs: WITHIN_MS, ...template };
  const { stdout, status, signal, error } = spawnSync(process.execPath, [...limits, program], {
    input: JSON.stringify(message),
    encoding: 'utf8',
    stdio: ['pipe', 'pipe', 'ignore'],
    maxBuffer: 2 ** 26,
  });
  if (status === 0) return textOf(JSON.parse(stdout) as FromRenderer, message);
  throw error ?? endOf(signal ?? `exit code ${status}`);
}

/** A model's tokenizer with its template. Null if the model has none. */
export interface Reader {
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate | null;
}

/**
 * A prompt's text, and whether the tokenizer adds its own tokens around it. Plain text is used unchanged. The template
 * writes messages. `prefill` is the beginning of the answer. Rejects with DataError if there is no template for
 * messages, or if it fails.
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
