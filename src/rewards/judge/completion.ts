/** What a server's answer to a chat request means: a text, or a problem and what may be done about it. */
import OpenAI from 'openai';
import { readFirstToken } from './first_token.js';
import { excerpt } from './parse.js';
import type { UnscoredReason } from '../score/types.js';

/**
 * `retry`: the same request may go better; `ask_again`: another seed may; `shrink`: smaller images may (the request is longer than the
 * model's context); `give_up`: none of these.
 */
export type Remedy = 'retry' | 'ask_again' | 'shrink' | 'give_up';

export interface Problem {
  readonly kind: 'problem';
  readonly problem: UnscoredReason;
  readonly detail: string;
  readonly remedy: Remedy;
  /** How long the server asks to be left alone, where it says so. */
  readonly retryAfterMs?: number;
}

/** `text` is the first token's alternatives, as JSON, where log-probabilities were asked for (see first_token.ts). */
export type Reply = { readonly kind: 'text'; readonly text: string; readonly cutOff: boolean } | Problem;

function problem(reason: UnscoredReason, detail: string, remedy: Remedy): Problem {
  return { kind: 'problem', problem: reason, detail, remedy };
}

/** What was asked for, as far as the reply is checked against it. */
export interface Asked {
  readonly model?: string;
  readonly logprobs?: boolean | null;
}

/** Finish reasons of servers that gave up on a reply: what there is of it may break off anywhere. */
const brokenOff: ReadonlySet<unknown> = new Set(['abort', 'error']);

/** Reads the body of a successful HTTP reply, which may be anything. */
export function readCompletion(body: unknown, asked: Asked = {}): Reply {
  if (typeof body === 'string') {
    return problem('server_error', `answered with text instead of a completion: ${excerpt(body)}`, 'ask_again');
  }
  const choices = field(body, 'choices');
  if (!Array.isArray(choices)) {
    const found = JSON.stringify(body) ?? 'nothing';
    return problem('server_error', `answered without choices: ${excerpt(found)}`, 'ask_again');
  }
  const model = field(body, 'model');
  if (asked.model !== undefined && typeof model === 'string' && !isModel(model, asked.model)) {
    const detail = `the answer came from another model, ${excerpt(model)}, than the one asked, "${asked.model}"`;
    return problem('server_error', detail, 'ask_again');
  }
  const choice: unknown = choices[0];
  const finishReason = field(choice, 'finish_reason');
  if (finishReason === 'content_filter') return problem('refused', 'a content filter stopped the reply', 'give_up');
  if (brokenOff.has(finishReason)) {
    return problem('server_error', `the server broke the reply off (finish_reason "${String(finishReason)}")`, 'retry');
  }
  const message = field(choice, 'message');
  const refusal = field(message, 'refusal');
  const text = field(message, 'content');
  if (asked.logprobs === true && choices.length > 0) return readLogprobs(choice);
  if (typeof text === 'string' && text !== '') return { kind: 'text', text, cutOff: finishReason === 'length' };
  if (typeof refusal === 'string' && refusal !== '') return problem('refused', excerpt(refusal), 'give_up');
  return problem('empty', choices.length === 0 ? 'answered with no choices' : 'answered with no content', 'ask_again');
}

function readLogprobs(choice: unknown): Reply {
  const text = readFirstToken(field(choice, 'logprobs'));
  if (text !== null) return { kind: 'text', text, cutOff: false };
  return problem(
    'bad_request',
    'the server ignores "logprobs": its reply holds no log-probabilities. Serve the judge with one that gives them (vLLM does, unless it was started with --max-logprobs 0), or choose a reward that reads texts',
    'give_up',
  );
}

/**
 * Whether a reply's model is the one that was asked. Servers may name it without its folder, or the `:free` of a router, in other case, or as
 * the dated snapshot that a name stands for (`gpt-4o-2024-08-06` for `gpt-4o`).
 */
function isModel(answered: string, asked: string): boolean {
  const [found, wanted] = [answered, asked].map((name) => name.toLowerCase().replace(/^.*\/(?=.)|:free$/g, ''));
  if (found === '' || found === wanted) return true;
  const base = wanted.replace(/-latest$/, '');
  return found.startsWith(base) && /^(?:-\d{4}-\d{2}-\d{2}|-\d{3,8}|-latest)?$/.test(found.slice(base.length));
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

/** All wordings by which vLLM has refused a request that is longer than the model's context. */
const overflow = /maximum (?:context|model) length|is too large/i;
/** vLLM lets the image processor's own complaints through as a 500; the same images bring them again. */
const unfitImage = /aspect ratio must be|must be larger than factor/i;
const filtered = /content[_ ]filter|content management policy/i;

function readStatus(error: StatusError, nowMs: number): Problem {
  const status = Number(error.status);
  const detail = excerpt(`HTTP ${error.message}`).slice(1, -1);
  if (status >= 400 && status < 500 && filtered.test(`${String(error.code)} ${error.message}`)) {
    return problem('refused', detail, 'give_up');
  }
  if (status === 400 && overflow.test(error.message)) return problem('bad_request', detail, 'shrink');
  if (status === 500 && unfitImage.test(error.message)) return problem('bad_request', detail, 'give_up');
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
