/**
 * A small `fetch` for the `openai` client on a pool of keep-alive connections. Node's own fetch spends more processor time on a small
 * call than the call is worth (streams, web headers) and gives up on bodies that are idle for 300 s, whatever the client's time limit.
 * The whole body is read before the promise resolves, so that an abort signal covers a server that stalls after its headers too.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { Agent, request } from 'undici';
import { InternalError } from '../core/errors.js';

export interface HttpPool {
  readonly fetch: (url: string | URL | Request, init?: RequestInit) => Promise<Response>;
  /** Closes idle connections and refuses further requests; may be called again. */
  close(): Promise<void>;
}

export interface HttpPoolOptions {
  /** Connections per server; further requests wait for a free one. */
  readonly connections: number;
  readonly connectTimeoutMs?: number;
  /** A key that must never come back: a server that quotes it in a reply is made to say `[key]` instead. */
  readonly secret?: string;
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
        headers: Object.fromEntries(new Headers(headers)),
        body: body ?? null,
        signal: signal ?? null,
      });
      const text = redact(await reply.body.text());
      return toResponse(reply.statusCode, reply.headers, text);
    },
    close: () => (closing ??= agent.close()),
  };
}

/** Shorter keys are what people type where a key is asked for and none is needed; to replace `none` would garble replies. */
const shortestSecret = 6;

/** Replaces a key in texts, whether plain or as JSON writes it (a slash may be escaped there). */
function redactor(secret = ''): (text: string) => string {
  if (secret.length < shortestSecret) return (text) => text;
  const quoted = JSON.stringify(secret).slice(1, -1);
  const forms = [...new Set([secret, quoted, quoted.replaceAll('/', '\\/')])];
  return (text) =>
    forms.reduce((clean, form) => (clean.includes(form) ? clean.replaceAll(form, '[key]') : clean), text);
}

/** Statuses that may carry no body, by the fetch standard. */
const bodiless: ReadonlySet<number> = new Set([204, 205, 304]);

function toResponse(status: number, incoming: IncomingHttpHeaders, text: string): Response {
  const headers = new Headers();
  for (const [name, value] of Object.entries(incoming)) {
    if (value !== undefined) headers.set(name, typeof value === 'string' ? value : value.join(', '));
  }
  return new Response(bodiless.has(status) ? null : text, { status, headers });
}
