/** Reads a server's reply to a chat request: a text, or a problem with its next step. */
import OpenAI from 'openai';
import { retryAfterMs } from '../../core/http/status.js';
import { causeOf } from '../../core/http/request.js';
import { allowBySetting, isModel, type AllowAlias } from './endpoints.js';
import { readFirstToken } from './first_token.js';
import { excerpt } from './parse.js';
import { refusedField, type LeavableField } from './dialect.js';
import type { UnscoredReason, Tokens } from '../score/types.js';

/** `retry`: the same request may succeed. `ask_again`: another sample may. `give_up`: neither. */
export type Remedy = 'retry' | 'ask_again' | 'give_up';

/** Why a server rejects every question, if its error gives the reason. The cause decides the advice. */
export type Cause = 'key' | 'funds' | 'busy' | 'stream_only' | 'too_long' | { readonly field: LeavableField };

export interface Problem {
  readonly kind: 'problem';
  readonly problem: UnscoredReason;
  readonly detail: string;
  readonly remedy: Remedy;
  /** Milliseconds that the server asks its clients to wait, if it does. */
  readonly retryAfterMs?: number;
  /** Whether the judge spent a reply that was cut off before its first word on thinking. */
  readonly thought?: boolean;
  /** The model that answered, if one did. */
  readonly model?: string | null;
  readonly cause?: Cause;
}

export interface TextReply {
  readonly kind: 'text';
  /** The first token's alternatives, as JSON, if log-probabilities were requested (see first_token.ts). */
  readonly text: string;
  readonly cutOff: boolean;
  /** The model that answered, as its server names it. Null if the reply has no name. */
  readonly model: string | null;
}

export type Reply = TextReply | Problem;

/** The reply to a request that was canceled. */
export const cancelledReply: Problem = {
  kind: 'problem',
  problem: 'aborted',
  detail: 'called off',
  remedy: 'give_up',
};

function problem(reason: UnscoredReason, detail: string, remedy: Remedy): Problem {
  return { kind: 'problem', problem: reason, detail, remedy };
}

/** The parts of a request that are needed to read its reply. */
export interface ReplyRequest {
  readonly logprobs?: boolean | null;
  readonly response_format?: unknown;
}

/**
 * How a reply ended, by its finish reason. Servers write these words in many ways (`MAX_TOKENS`, `content_filter: RECITATION`). `open`: the
 * server gives no reason, so the reply may end anywhere, like one that was `cut`. An unknown reason is never a plain stop.
 */
type Ending = 'whole' | 'cut' | 'open' | 'filtered' | 'broken' | 'tool_call' | 'unknown';

const endings: readonly (readonly [Exclude<Ending, 'open' | 'unknown'>, RegExp])[] = [
  ['whole', /^(?:stop|stop_sequence|eos|eos_token|end_turn|completed?)$/],
  ['cut', /^(?:length|max_length|model_length|max(?:_output|_new|_completion)?_tokens|model_context_window_exceeded)$/],
  ['filtered', /filter|safety|recitation|prohibited|blocklist|spii|refusal|sensitive|moderation|policy/],
  ['broken', /^abort|error|cancel|malformed|insufficient_system_resource/],
  ['tool_call', /tool_(?:call|use)|function_call/],
];

function endingOf(reason: unknown): Ending {
  if (reason === null || reason === undefined) return 'open';
  if (typeof reason !== 'string') return 'unknown';
  const word = reason.toLowerCase().replace(/^finish_?reason[._]/, '');
  return endings.find(([, words]) => words.test(word))?.[0] ?? 'unknown';
}

/** Reads the body of a successful HTTP reply, which may be anything. */
export function readCompletion(body: unknown, request: ReplyRequest = {}): Reply {
  if (typeof body === 'string') {
    return problem('server_error', `answered with text instead of a completion: ${excerpt(body)}`, 'ask_again');
  }
  const choices = field(body, 'choices');
  if (!Array.isArray(choices)) {
    const found = JSON.stringify(body) ?? 'nothing';
    return problem('server_error', `answered without choices: ${excerpt(found)}`, 'ask_again');
  }
  const named = field(body, 'model');
  const model = typeof named === 'string' ? named : null;
  const choice: unknown = choices[0];
  const finishReason = field(choice, 'finish_reason');
  const ending = endingOf(finishReason);
  const shown = `(finish_reason ${JSON.stringify(finishReason)?.slice(0, 80)})`;
  if (ending === 'filtered') return problem('refused', `a content filter stopped the reply ${shown}`, 'give_up');
  if (ending === 'broken') return problem('server_error', `the server stopped the reply early ${shown}`, 'retry');
  if (ending === 'unknown') {
    return problem('server_error', `the reply ended for an unknown reason ${shown}`, 'ask_again');
  }
  const message = field(choice, 'message');
  if (request.logprobs === true && choices.length > 0) return readLogprobs(choice, model);
  const { text, refusal, thought } = contentOf(message);
  if (isText(text)) return { kind: 'text', text, cutOff: ending !== 'whole', model };
  if (isText(refusal)) return problem('refused', excerpt(refusal), 'give_up');
  const call = toolCallIn(message);
  if (call !== null) {
    return problem(
      'empty',
      `answered with a call of the tool ${excerpt(call)}, which is not supported, and with no text`,
      'give_up',
    );
  }
  return withoutText(choice, {
    asked: request,
    model,
    cut: ending === 'cut',
    thought: thought || reasoningTokens(body) > 0,
  });
}

/** The words of a message whose content is a text, or a list of parts. Parts of type `text` are the answer, any others are thoughts or a refusal. */
function contentOf(message: unknown): { readonly text: unknown; readonly refusal: unknown; readonly thought: boolean } {
  const content = field(message, 'content');
  const refusal = field(message, 'refusal');
  // vLLM, SGLang, llama.cpp and DeepSeek use `reasoning_content`. Newer vLLM and OpenRouter use `reasoning`. OpenAI only counts the tokens.
  const thought = isText(field(message, 'reasoning_content')) || isText(field(message, 'reasoning'));
  if (!Array.isArray(content)) return { text: content, refusal, thought };
  const parts: readonly unknown[] = content;
  const ofType = (...types: readonly unknown[]): readonly unknown[] =>
    parts.filter((part) => types.includes(field(part, 'type')));
  return {
    text: ofType('text', 'output_text')
      .map((part) => field(part, 'text'))
      .filter(isText)
      .join(''),
    refusal: refusal ?? field(ofType('refusal').at(0), 'refusal'),
    thought: thought || ofType('thinking', 'reasoning').length > 0,
  };
}

/** The name of the tool that a message calls. Null if it calls none. */
function toolCallIn(message: unknown): string | null {
  const calls = field(message, 'tool_calls');
  const call: unknown =
    Array.isArray(calls) && calls.length > 0 ? field(calls[0], 'function') : field(message, 'function_call');
  const name = field(call, 'name');
  return typeof name === 'string' ? name : null;
}

function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

interface ReplyContext {
  readonly asked: ReplyRequest;
  readonly model: string | null;
  /** Whether the reply was cut off at its token limit. */
  readonly cut: boolean;
  /** Whether the server reports thoughts. */
  readonly thought: boolean;
}

/** A reply without a word: a thinking judge may have spent all its tokens on thoughts. */
function withoutText(choice: unknown, { asked, model, cut, thought }: ReplyContext): Problem {
  if (choice === undefined) return problem('empty', 'answered with no choices', 'ask_again');
  if (cut) {
    const where = thought ? 'while it was still thinking' : 'before its first word';
    return { ...problem('truncated', `cut off ${where}`, 'ask_again'), thought, model };
  }
  const empty = problem('empty', `answered with no content${thought ? ', only thoughts' : ''}`, 'ask_again');
  // With a grammar that does not contain the end of thinking, the whole answer counts as a thought (sgl-project/sglang#14821).
  return thought && asked.response_format !== undefined ? { ...empty, cause: { field: 'response_format' } } : empty;
}

function reasoningTokens(body: unknown): number {
  return Number(field(field(field(body, 'usage'), 'completion_tokens_details'), 'reasoning_tokens') ?? 0);
}

function readLogprobs(choice: unknown, model: string | null): Reply {
  const text = readFirstToken(field(choice, 'logprobs'));
  if (text !== null) return { kind: 'text', text, cutOff: false, model };
  return problem(
    'bad_request',
    'the server ignores "logprobs": its reply contains no log-probabilities. Serve the judge with a server that gives them (vLLM does, unless it was started with --max-logprobs 0), or choose a reward that reads texts',
    'give_up',
  );
}

/** Whether a reply shows that its judge works. One that only thought within its tokens does, too. */
export function isAlive(reply: Reply): reply is TextReply | (Problem & { readonly problem: 'truncated' }) {
  return reply.kind === 'text' || reply.problem === 'truncated';
}

/** Other names that a judge may report in addition to the requested one: a list of them, or true for any. */
export type ModelAlias = boolean | readonly string[];

/**
 * The reply, or a problem if it came from another model than the requested one: its scores would be another judge's. `allow` gives the
 * setting that allows it.
 */
export function checkModel(
  reply: Reply,
  requestedModel: string,
  alias: ModelAlias,
  allow: AllowAlias = allowBySetting('model_alias'),
): Reply {
  const { model = null } = reply;
  if (model === null || alias === true) return reply;
  const allowed = [requestedModel, ...(alias === false ? [] : alias)];
  if (allowed.some((name) => isModel(model, name))) return reply;
  const name = excerpt(model);
  const detail = `the model ${name} answered, but "${requestedModel}" was requested; if both are the same model (behind a proxy, as a deployment, or with several names), ${allow(name)}`;
  return problem('server_error', detail, 'ask_again');
}

/** The reply for an error of the client. Raises errors that do not come from a request. */
export function readError(error: unknown, nowMs: number): Problem {
  if (error instanceof OpenAI.APIConnectionTimeoutError) return problem('timeout', 'no answer in time', 'retry');
  if (error instanceof OpenAI.APIConnectionError) return problem('connection', causeOf(error), 'retry');
  if (error instanceof OpenAI.APIError) return readStatus(error as StatusError, nowMs);
  if (error instanceof SyntaxError) {
    return problem('server_error', `answered with invalid JSON (${error.message})`, 'ask_again');
  }
  throw error;
}

type StatusError = Pick<
  InstanceType<typeof OpenAI.APIError<number | undefined, Headers | undefined>>,
  'status' | 'headers' | 'code' | 'type' | 'param' | 'message' | 'error'
>;

/** vLLM reports errors of the image processor as a 500. The same images cause them again. */
const unfitImage = /aspect ratio must be|must be larger than factor/i;
const filtered = /content[_ ]filter|content management policy/i;
/** OpenAI's error for a model that thought until its tokens were spent. */
const spentOnThinking = /could not finish the message because max_tokens/i;
/** How servers report that prompt and reply are longer than the model's context. Some send a 500. */
const tooLong =
  /context[_ ](?:length|size|window)|model length|max_model_len|maximum allowed (?:input )?length|input tokens exceed|maximum number of tokens|tokens'? is too large|tokens must be at least 1, got -/i;
const noFunds =
  /insufficient_(?:quota|balance|funds|credit)|exceeded your current quota|(?:balance|credits?) (?:is|are) too low/i;
const streamOnly =
  /\b(?:only|must|requires?)\b[^.]*\bstream|\bstream(?:ed|ing)?\b[^.]*\b(?:only|enable|required)\b|\bstream parameter\b/i;

function readStatus(error: StatusError, nowMs: number): Problem {
  const status = Number(error.status);
  const detail = excerpt(`HTTP ${error.message}`).slice(1, -1);
  const words = `${error.code ?? ''} ${error.type ?? ''} ${error.message}`;
  const refuses = (cause?: Cause): Problem => ({
    ...problem('bad_request', detail, 'give_up'),
    ...(cause === undefined ? {} : { cause }),
  });
  if (status >= 400 && status < 500 && filtered.test(words)) return problem('refused', detail, 'give_up');
  if (status === 401 || status === 403) return refuses('key');
  if (status === 402 || (status === 429 && noFunds.test(words))) {
    return { ...problem('rate_limited', detail, 'give_up'), cause: 'funds' };
  }
  if (status === 413 || ([400, 500].includes(status) && tooLong.test(words))) return refuses('too_long');
  if (status === 400 && spentOnThinking.test(words)) {
    return { ...problem('truncated', detail, 'ask_again'), thought: true };
  }
  const field = refusedField({ status, param: typeof error.param === 'string' ? error.param : null, words });
  if (field !== null) return refuses({ field });
  if (status === 400 && streamOnly.test(words)) return refuses('stream_only');
  if (status === 500 && unfitImage.test(error.message)) return refuses();
  if (status === 408) return problem('timeout', detail, 'retry');
  if (status === 409 || status >= 500) return withRetryAfter(problem('server_error', detail, 'retry'), error, nowMs);
  if (status === 429) {
    return { ...withRetryAfter(problem('rate_limited', detail, 'retry'), error, nowMs), cause: 'busy' };
  }
  return refuses();
}

/** Advice for a rejected field, as part of a sentence. */
export function leaveOutAdvice({ field }: { readonly field: LeavableField }): string {
  return `set reward.leave_out: ['${field}'] to send requests without it`;
}

function withRetryAfter(found: Problem, error: StatusError, nowMs: number): Problem {
  const wait = retryAfterMs((name) => error.headers?.get(name), nowMs) ?? retryDelayMs(error.error);
  return wait === null ? found : { ...found, retryAfterMs: wait };
}

/** Google's `retryDelay`, such as `7s`, among the details of its error. Null if there is none. */
function retryDelayMs(error: unknown): number | null {
  const details = field(error, 'details');
  if (!Array.isArray(details)) return null;
  const delays = details.map((detail) => {
    const delay = field(detail, 'retryDelay');
    return typeof delay === 'string' ? /^(\d+(?:\.\d+)?)s$/.exec(delay)?.[1] : undefined;
  });
  const delay = delays.find((seconds) => seconds !== undefined);
  return delay === undefined ? null : Number(delay) * 1000;
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/**
 * The tokens of a reply, by the `usage` in its body. Null if the server does not count them. A value that is not a count means none, and so
 * do two zeros, which some servers send without counting.
 */
export function tokensOf(body: unknown): Tokens | null {
  const { prompt_tokens: prompt, completion_tokens: completion } = usageOf(body);
  if (!isCount(prompt) || !isCount(completion) || prompt + completion === 0) return null;
  return { prompt, completion };
}

/** The tokens of two replies, each null if not counted. */
export function addTokens(a: Tokens | null, b: Tokens | null): Tokens | null {
  if (a === null || b === null) return a ?? b;
  return { prompt: a.prompt + b.prompt, completion: a.completion + b.completion };
}

function usageOf(body: unknown): { readonly prompt_tokens?: unknown; readonly completion_tokens?: unknown } {
  const usage = typeof body === 'object' && body !== null ? (body as { readonly usage?: unknown }).usage : undefined;
  return typeof usage === 'object' && usage !== null ? usage : {};
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
