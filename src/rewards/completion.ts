/** What a server's answer to a chat request means: a text, or a problem and what may be done about it. */
import OpenAI from 'openai';
import { excerpt } from './parse.js';
import type { UnscoredReason } from './types.js';

/** `retry`: the same request may go better; `ask_again`: another seed may; `give_up`: neither. */
export type Remedy = 'retry' | 'ask_again' | 'give_up';

export interface Problem {
  readonly kind: 'problem';
  readonly problem: UnscoredReason;
  readonly detail: string;
  readonly remedy: Remedy;
  /** How long the server asks to be left alone, where it says so. */
  readonly retryAfterMs?: number;
}

export type Reply = { readonly kind: 'text'; readonly text: string; readonly cutOff: boolean } | Problem;

function problem(reason: UnscoredReason, detail: string, remedy: Remedy): Problem {
  return { kind: 'problem', problem: reason, detail, remedy };
}

/** Reads the body of a successful HTTP reply, which may be anything. */
export function readCompletion(body: unknown): Reply {
  if (typeof body === 'string') {
    return problem('server_error', `answered with text instead of a completion: ${excerpt(body)}`, 'ask_again');
  }
  const choices = field(body, 'choices');
  if (!Array.isArray(choices)) {
    const found = JSON.stringify(body) ?? 'nothing';
    return problem('server_error', `answered without choices: ${excerpt(found)}`, 'ask_again');
  }
  const choice: unknown = choices[0];
  const finishReason = field(choice, 'finish_reason');
  const message = field(choice, 'message');
  const refusal = field(message, 'refusal');
  const text = field(message, 'content');
  if (finishReason === 'content_filter') return problem('refused', 'a content filter stopped the reply', 'give_up');
  if (typeof text === 'string' && text !== '') return { kind: 'text', text, cutOff: finishReason === 'length' };
  if (typeof refusal === 'string' && refusal !== '') return problem('refused', excerpt(refusal), 'give_up');
  return problem('empty', choices.length === 0 ? 'answered with no choices' : 'answered with no content', 'ask_again');
}

/** What an error of the client means; raises what is no error of a request. */
export function readError(error: unknown, nowMs: number): Problem {
  if (error instanceof OpenAI.APIConnectionTimeoutError) return problem('timeout', 'no answer in time', 'retry');
  if (error instanceof OpenAI.APIConnectionError) return problem('connection', causeOf(error), 'retry');
  if (error instanceof OpenAI.APIError) return readStatus(error as StatusError, nowMs);
  if (error instanceof SyntaxError) {
    return problem('server_error', `answered with broken JSON (${error.message})`, 'ask_again');
  }
  throw error;
}

type StatusError = Pick<
  InstanceType<typeof OpenAI.APIError<number | undefined, Headers | undefined>>,
  'status' | 'headers' | 'code' | 'message'
>;

function readStatus(error: StatusError, nowMs: number): Problem {
  const status = Number(error.status);
  const detail = excerpt(`HTTP ${error.message}`).slice(1, -1);
  if (
    status >= 400 &&
    status < 500 &&
    /content[_ ]filter|content management policy/i.test(`${String(error.code)} ${error.message}`)
  ) {
    return problem('refused', detail, 'give_up');
  }
  if (status === 408) return problem('timeout', detail, 'retry');
  if (status === 409 || status >= 500) return withRetryAfter(problem('server_error', detail, 'retry'), error, nowMs);
  if (status === 429) return withRetryAfter(problem('rate_limited', detail, 'retry'), error, nowMs);
  return problem('bad_request', detail, 'give_up');
}

function withRetryAfter(found: Problem, error: StatusError, nowMs: number): Problem {
  const headers = error.headers;
  const retryAfterMs = parseRetryAfter(
    headers?.get('retry-after-ms') ?? null,
    headers?.get('retry-after') ?? null,
    nowMs,
  );
  return retryAfterMs === null ? found : { ...found, retryAfterMs };
}

/** `Retry-After` (seconds or a date, RFC 9110) or its millisecond relative, in milliseconds from `nowMs` (since 1970); null where neither can be read. */
export function parseRetryAfter(milliseconds: string | null, value: string | null, nowMs: number): number | null {
  if (milliseconds !== null && /^\d+(\.\d+)?$/.test(milliseconds)) return Number(milliseconds);
  if (value === null) return null;
  if (/^\d+(\.\d+)?$/.test(value)) return Number(value) * 1000;
  const date = Date.parse(value);
  return Number.isNaN(date) ? null : Math.max(0, date - nowMs);
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/** The innermost message of a chain of causes: the client's own says only that there was a connection error. */
function causeOf(error: Error): string {
  let innermost: Error = error;
  for (let depth = 0; depth < 8 && innermost.cause instanceof Error; depth++) innermost = innermost.cause;
  const code = (innermost as NodeJS.ErrnoException).code;
  if (innermost.message === '') return code ?? innermost.name;
  return code === undefined || innermost.message.includes(code) ? innermost.message : `${code}: ${innermost.message}`;
}
