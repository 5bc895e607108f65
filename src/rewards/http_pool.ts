/**
 * A small `fetch` for the `openai` client on a pool of keep-alive connections. Node's own fetch spends more processor time on a small
 * call than the call is worth (streams, web headers) and gives up on bodies that are idle for 300 s, whatever the client's time limit.
 * The whole body is read before the promise resolves, so that an abort signal covers a server that stalls after its headers too.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { Agent, request } from 'undici';
import { InternalError } from '../core/errors.js';
import { redactor, type Redact } from './redact.js';

export interface HttpPool {
  readonly fetch: (url: string | URL | Request, init?: RequestInit) => Promise<Response>;
  /** Closes idle connections and refuses further requests; may be called again. */
  close(): Promise<void>;
}

export interface HttpPoolOptions {
  /** Connections per server; further requests wait for a free one. */
  readonly connections: number;
  readonly connectTimeoutMs?: number;
  /** A key that must never come back: a server that quotes it in a reply is made to say `[key]` instead. Null where none is sent. */
  readonly secret: string | null;
}

/** A judge's reply is a few kilobytes; this bounds what a wrong address may send. */
const maxResponseBytes = 16 * 1024 * 1024;

export function createHttpPool({ connections, connectTimeoutMs = 10_000, secret }: HttpPoolOptions): HttpPool {
  const agent = new Agent({
    connections,
    pipelining: 1,
    keepAliveTimeout: 4_000,
    // Deadlines are the caller's, by abort signal.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: connectTimeoutMs },
    maxResponseSize: maxResponseBytes,
  });
  const redact = redactor(secret);
  let closing: Promise<void> | null = null;
  return {
    async fetch(url, init = {}) {
      if (url instanceof Request) throw new InternalError('the HTTP pool takes addresses, not Request objects');
      const { body, method = 'GET', headers, signal } = init;
      if (body !== undefined && body !== null && typeof body !== 'string') {
        throw new InternalError('the HTTP pool sends text bodies only');
      }
      const reply = await request(url, {
        dispatcher: agent,
        method: method === 'POST' ? 'POST' : 'GET',
        headers: toHeaders(headers),
        body: body ?? null,
        signal: signal ?? null,
      });
      const text = redact(await reply.body.text());
      return toResponse(reply.statusCode, reply.headers, text, redact);
    },
    close: () => (closing ??= agent.close()),
  };
}

/** An error of the platform for a header that cannot be sent quotes it whole, key included; this one does not. */
function toHeaders(headers: RequestInit['headers']): Record<string, string> {
  try {
    return Object.fromEntries(new Headers(headers));
  } catch {
    throw new InternalError('a header of the request holds what HTTP does not carry');
  }
}

/** Statuses that may carry no body, by the fetch standard. */
const bodiless: ReadonlySet<number> = new Set([204, 205, 304]);

function toResponse(status: number, incoming: IncomingHttpHeaders, text: string, redact: Redact): Response {
  const headers = new Headers();
  for (const [name, value] of Object.entries(incoming)) {
    if (value !== undefined) headers.set(name, redact(typeof value === 'string' ? value : value.join(', ')));
  }
  return new Response(bodiless.has(status) ? null : text, { status, headers });
}
