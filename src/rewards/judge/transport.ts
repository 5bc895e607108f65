/**
 * Requests to one or several equal judges, with the only retry policy there is: the `openai` client's own is off, so that attempts
 * do not multiply. Every attempt and every query has its own deadline; the client's would not cover a stall after the headers.
 */
import OpenAI from 'openai';
import { Breaker } from '../../balance/breaker.js';
import type { ChatRequest } from './chat_request.js';
import type { Clock } from '../../core/clock.js';
import { longestTimer, sleep } from '../../core/clock.js';
import type { Problem, Reply } from './completion.js';
import { readCompletion, readError } from './completion.js';
import { Deadline } from '../../core/deadline.js';
import type { HttpPool, TextResponse } from '../../http/pool.js';
import { createHttpPool } from '../../http/pool.js';

export interface TransportPolicy {
  /** Requests per question, over retries. */
  readonly maxAttempts: number;
  readonly attemptTimeoutMs: number;
  /** Backoff before retry k is uniform in [0, min(cap, base * 2^(k-1))] ("full jitter"; Brooker, AWS Architecture Blog, 2015). */
  readonly backoffBaseMs: number;
  readonly backoffCapMs: number;
  /** A longer `Retry-After` is cut to this. */
  readonly retryAfterCapMs: number;
  /** Failures in a row after which the judge is left alone, and for how long. */
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

/** The time that so many requests take at most, one after another, with the longest pauses between them: n timeout + (n - 1) pauses. */
export function longestExchangeMs(policy: TransportPolicy, requests: number): number {
  const pauseMs = policy.retryAfterCapMs + policy.backoffCapMs;
  return requests * policy.attemptTimeoutMs + (requests - 1) * pauseMs;
}

export interface TransportOptions {
  /** Base URLs ending in `/v1`; questions go round them, and so do the attempts of each. */
  readonly endpoints: readonly string[];
  readonly apiKey: string;
  readonly connections: number;
  readonly policy: TransportPolicy;
  readonly clock: Clock;
  /** Uniform in [0, 1), for jitter only: it must not draw from a stream that training uses. */
  readonly random: () => number;
}

export class Transport {
  readonly #clients: readonly OpenAI[];
  readonly #pool: HttpPool;
  readonly #options: TransportOptions;
  readonly #breaker: Breaker;
  #next = 0;

  constructor(options: TransportOptions) {
    const { endpoints, apiKey, connections, policy, clock } = options;
    this.#options = options;
    this.#pool = createHttpPool({ connections, secret: apiKey });
    this.#breaker = new Breaker(clock, policy.breakerLimit, policy.breakerPauseMs);
    this.#clients = endpoints.map((baseURL) => createClient(baseURL, apiKey, this.#pool));
  }

  /** Sends until there is a reply, retrying is pointless, or the query's time is over. Counts the requests that it made. */
  async send(request: ChatRequest, query: Deadline): Promise<{ readonly reply: Reply; readonly attempts: number }> {
    const { policy, clock } = this.#options;
    const blocking = this.#breaker.blocking();
    if (blocking !== null) {
      const detail = `not asked: the last ${blocking} questions to the judge failed`;
      return { reply: { kind: 'problem', problem: 'connection', detail, remedy: 'give_up' }, attempts: 0 };
    }
    // A question's own turns: with those of all questions in one row, its second attempt could meet the judge that failed its first.
    const turn = this.#next++;
    for (let attempt = 1; ; attempt++) {
      const reply = await this.#attempt(request, query, turn + attempt - 1);
      if (reply.kind === 'text' || reply.remedy !== 'retry') {
        this.#breaker.succeeded();
        return { reply, attempts: attempt };
      }
      const wait = this.#backoffMs(attempt, reply);
      const last = attempt >= policy.maxAttempts || wait >= query.remainingMs();
      if (!last) await sleep(clock, wait, query.signal);
      if (last || query.over) {
        // Questions that the caller called off say nothing about the judge.
        if (last || query.remainingMs() === 0) this.#breaker.failed();
        return { reply, attempts: attempt };
      }
    }
  }

  /** One request without retries, asked even of a judge that is being spared; a text lets everyone through again. */
  async probe(request: ChatRequest, query: Deadline): Promise<Reply> {
    const reply = await this.#attempt(request, query, this.#next++);
    if (reply.kind === 'text') this.#breaker.succeeded();
    return reply;
  }

  close(): Promise<void> {
    return this.#pool.close();
  }

  async #attempt(request: ChatRequest, query: Deadline, turn: number): Promise<Reply> {
    const client = this.#clients[turn % this.#clients.length];
    const deadline = new Deadline(this.#options.clock, this.#options.policy.attemptTimeoutMs, query);
    try {
      const body: unknown = await client.chat.completions.create(request, { signal: deadline.signal });
      return readCompletion(body, request);
    } catch (error) {
      if (!deadline.over) return readError(error, Date.now());
      return { kind: 'problem', problem: 'timeout', detail: 'no answer in time', remedy: 'retry' };
    } finally {
      deadline.dispose();
    }
  }

  #backoffMs(attempt: number, found: Problem): number {
    const { policy, random } = this.#options;
    const jitter = random() * Math.min(policy.backoffCapMs, policy.backoffBaseMs * 2 ** (attempt - 1));
    const asked = Math.min(policy.retryAfterCapMs, found.retryAfterMs ?? 0);
    // Jitter comes on top, so that callers who were told the same moment do not all come back at it.
    return asked + jitter;
  }
}

/** The `openai` client with its retries, timer, logging and environment variables out of the way. */
export function createClient(baseURL: string, apiKey: string, pool: HttpPool): OpenAI {
  return new OpenAI({
    baseURL,
    apiKey,
    organization: null,
    project: null,
    maxRetries: 0,
    // Its own timer is kept out of the way.
    timeout: longestTimer,
    logLevel: 'off',
    // The client reads no more of a reply than a TextResponse has.
    fetch: async (url, init) => (await withError(await pool.fetch(url, init))) as unknown as Response,
  });
}

/** The client reads an error's message at `error.message` only; older vLLM has it at `message`, and FastAPI at `detail`. */
async function withError(reply: TextResponse): Promise<TextResponse> {
  if (reply.status < 400) return reply;
  const told = underError(await reply.text());
  return told === null ? reply : reply.saying(told);
}

function underError(text: string): string | null {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof body !== 'object' || body === null || 'error' in body) return null;
  const { message, detail, code } = body as { message?: unknown; detail?: unknown; code?: unknown };
  return JSON.stringify({ error: { message: message ?? detail ?? text, code } });
}
