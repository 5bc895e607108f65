/**
 * Requests to one or several equal judges. The `openai` client's own retries are off, so that attempts do not multiply. Every attempt and
 * every query has its own time limit. The client's timer would not cover a stall after the headers.
 */
import OpenAI from 'openai';
import { type Clock, type Deadline, MAX_TIMER_MS } from '../../core/clock.js';
import { createHttpPool, type HttpPool, type TextResponse } from '../../core/http/pool.js';
import { Member } from '../../core/remote/member.js';
import { type AskPolicy, type AttemptResult, Remote, attemptResult } from '../../core/remote/remote.js';
import type { Tokens } from '../score/types.js';
import type { ChatRequest } from './chat_request.js';
import { type Reply, addTokens, readCompletion, readError, tokensOf } from './completion.js';

export interface TransportPolicy extends AskPolicy {
  /** After this many failed questions in a row, a judge is skipped for the pause. */
  readonly breakerLimit: number;
  readonly breakerPauseMs: number;
}

export const defaultTransportPolicy: TransportPolicy = {
  maxAttempts: 5,
  attemptTimeoutMs: 120_000,
  backoffBaseMs: 500,
  backoffCapMs: 16_000,
  retryAfterCapMs: 30_000,
  breakerLimit: 64,
  breakerPauseMs: 20_000,
};

/** The longest time of `requests` requests in a row with the longest pauses between them: n timeout + (n - 1) pauses. */
export function longestExchangeMs(policy: TransportPolicy, requests: number): number {
  const pauseMs = policy.retryAfterCapMs + policy.backoffCapMs;
  return requests * policy.attemptTimeoutMs + (requests - 1) * pauseMs;
}

interface TransportOptions {
  /** Base URLs. */
  readonly endpoints: readonly string[];
  readonly apiKey: string;
  readonly connections: number;
  readonly policy: TransportPolicy;
  readonly clock: Clock;
  /** Uniform in [0, 1), for jitter only: it must not draw from a stream that training uses. */
  readonly random: () => number;
}

class JudgeMember extends Member {
  readonly client: OpenAI;

  constructor(url: string, pool: HttpPool, { clock, apiKey, connections, policy }: TransportOptions) {
    const { breakerLimit: failures, breakerPauseMs: pauseMs } = policy;
    super(url, clock, { cap: connections, failures, doubts: failures, pauseMs });
    this.client = createClient(url, apiKey, pool);
  }
}

/** A request with the tokens of its replies so far. Earlier attempts cost as much as the last one. */
interface Sending {
  readonly request: ChatRequest;
  tokens: Tokens | null;
}

/** The result of a request. */
export interface Sent {
  readonly reply: Reply;
  /** Requests made. */
  readonly attempts: number;
  /** Tokens of all replies that report them. Null if none does. */
  readonly tokens: Tokens | null;
}

export class Transport {
  readonly #remote: Remote<JudgeMember, Sending, Reply>;
  readonly #pool: HttpPool;
  readonly #breakerLimit: number;

  constructor(options: TransportOptions) {
    const pool = createHttpPool({ connections: options.connections, secret: options.apiKey });
    this.#pool = pool;
    this.#breakerLimit = options.policy.breakerLimit;
    this.#remote = new Remote({
      ...options,
      members: options.endpoints.map((url) => new JudgeMember(url, pool, options)),
      attempt: ({ client }, sending, within) => complete(client, sending, within),
    });
  }

  /** Sends until there is a reply, retrying is pointless, or the query's time is over. */
  async send(request: ChatRequest, query: Deadline): Promise<Sent> {
    const sending: Sending = { request, tokens: null };
    const { reply, attempts, skipped } = await this.#remote.ask(sending, query);
    return { reply: reply ?? this.#notSent(skipped), attempts, tokens: sending.tokens };
  }

  /** One request without retries, even to a judge that is skipped. A text makes it available again. */
  async probe(request: ChatRequest, query: Deadline): Promise<Reply> {
    return (await this.#remote.once({ request, tokens: null }, query)) ?? this.#notSent(false);
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  #notSent(skipped: boolean): Reply {
    if (!skipped) {
      return { kind: 'problem', problem: 'timeout', detail: 'no judge was free in time', remedy: 'give_up' };
    }
    const detail = `not asked: the last ${this.#breakerLimit} questions to the judge failed`;
    return { kind: 'problem', problem: 'connection', detail, remedy: 'give_up' };
  }
}

/** Never rejects. A judge that replies is working, whatever the reply, including a rejected request. */
async function complete(client: OpenAI, sending: Sending, within: Deadline): Promise<AttemptResult<Reply>> {
  const { request } = sending;
  let reply: Reply;
  try {
    const data: unknown = await client.chat.completions.create(request, { signal: within.signal });
    sending.tokens = addTokens(sending.tokens, tokensOf(data));
    reply = readCompletion(data, request);
  } catch (error) {
    reply = within.over
      ? { kind: 'problem', problem: 'timeout', detail: 'no answer in time', remedy: 'retry' }
      : readError(error, Date.now());
  }
  if (reply.kind === 'text') return attemptResult('answered', reply);
  const { remedy, problem, retryAfterMs } = reply;
  if (remedy !== 'retry') return attemptResult('refused', reply);
  return attemptResult(problem === 'rate_limited' ? 'turned_away' : 'failed', reply, retryAfterMs);
}

/** The `openai` client without its retries, timer, logging and environment variables. */
export function createClient(baseURL: string, apiKey: string, pool: HttpPool): OpenAI {
  return new OpenAI({
    baseURL,
    apiKey,
    organization: null,
    project: null,
    maxRetries: 0,
    // This module sets its own time limits.
    timeout: MAX_TIMER_MS,
    logLevel: 'off',
    // The client reads no more of a reply than a TextResponse has.
    fetch: async (url, init) => (await withError(await pool.fetch(url, init))) as unknown as Response,
  });
}

/** The client reads an error's message at `error.message` only. Older vLLM has it at `message`, FastAPI at `detail`, and Google sends a list. */
async function withError(reply: TextResponse): Promise<TextResponse> {
  if (reply.status < 400) return reply;
  const error = underError(await reply.text());
  return error === null ? reply : reply.withText(error);
}

function underError(text: string): string | null {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  // Google's errors are lists of one.
  const listed: unknown = Array.isArray(body) ? body[0] : body;
  if (typeof listed !== 'object' || listed === null) return null;
  if ('error' in listed) return listed === body ? null : JSON.stringify(listed);
  const { message, detail, code } = listed as { message?: unknown; detail?: unknown; code?: unknown };
  return JSON.stringify({ error: { message: message ?? detail ?? text, code } });
}
