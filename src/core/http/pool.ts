/**
 * A small `fetch` for the `openai` client on a pool of keep-alive connections. Node's fetch spends too much processor time on small calls
 * (streams, web headers), and drops bodies that are idle for 300 s whatever the client's time limit. Servers on other machines are reached
 * through the proxies of the environment. The promise resolves with the whole body, so an abort signal also covers a server that stalls
 * after its headers.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { Agent, EnvHttpProxyAgent, Pool, type Dispatcher } from 'undici';
import { ConfigError, InternalError } from '../errors.js';
import { isLoopback } from './guard.js';
import { exchangeWhole, type HttpRequest, type WholeReply } from './request.js';
import { redactor, type Redact } from './key.js';

export interface HttpPool {
  readonly fetch: (url: string | URL | Request, init?: RequestInit) => Promise<TextResponse>;
  /** A request with a binary reply, which is not redacted. Rejects as `exchangeWhole`. */
  readonly exchange: (url: string, request: HttpRequest) => Promise<WholeReply>;
  /** Removes the secret from a server's text. */
  readonly redact: Redact;
  /** Closes idle connections and rejects further requests. May be called again. */
  close(): Promise<void>;
}

export interface HttpPoolOptions {
  /** Connections per server. Further requests wait for a free one. */
  readonly connections: number;
  readonly connectTimeoutMs?: number;
  /** A key that must not leak: if a server quotes it, `[key]` replaces it. Null if none is sent. */
  readonly secret: string | null;
  /** The longest reply. */
  readonly maxResponseBytes?: number;
}

/** A judge's reply is a few kilobytes. This limits what a wrong address can send. */
const MAX_REPLY_BYTES = 16 * 1024 * 1024;

/**
 * A reply with its whole text: the part of a `Response` that the `openai` client and other callers read. Streams and web headers of a real
 * one take a tenth of a small call's processor time.
 */
export class TextResponse {
  readonly url = '';
  readonly body = null;

  constructor(
    readonly status: number,
    readonly headers: TextHeaders,
    private readonly content: string,
  ) {}

  get ok(): boolean {
    return this.status >= 200 && this.status < 300;
  }

  text(): Promise<string> {
    return Promise.resolve(this.content);
  }

  /** Rejects with SyntaxError if the text is not JSON. */
  async json(): Promise<unknown> {
    return JSON.parse(this.content) as unknown;
  }

  /** A copy of the reply with another text. */
  withText(content: string): TextResponse {
    return new TextResponse(this.status, this.headers, content);
  }
}

/** Headers of a reply, by lower-case names. */
export class TextHeaders {
  readonly #values = new Map<string, string>();

  constructor(incoming: IncomingHttpHeaders, redact: Redact) {
    for (const [name, value] of Object.entries(incoming)) {
      if (value !== undefined) this.#values.set(name, redact(typeof value === 'string' ? value : value.join(', ')));
    }
  }

  get(name: string): string | null {
    return this.#values.get(name.toLowerCase()) ?? null;
  }

  entries(): MapIterator<[string, string]> {
    return this.#values.entries();
  }
}

export function createHttpPool({
  connections,
  connectTimeoutMs = 10_000,
  secret,
  maxResponseBytes = MAX_REPLY_BYTES,
}: HttpPoolOptions): HttpPool {
  const connector = createConnector({
    connections,
    pipelining: 1,
    keepAliveTimeout: 4_000,
    // The caller limits time by an abort signal.
    headersTimeout: 0,
    bodyTimeout: 0,
    connect: { timeout: connectTimeoutMs },
    maxResponseSize: maxResponseBytes,
  });
  const redact = redactor(secret);
  const decoder = new TextDecoder();
  let closing: Promise<void> | null = null;
  return {
    exchange: (url, request) => exchangeWhole(connector.to(url), url, request),
    redact,
    async fetch(url, init = {}) {
      if (url instanceof Request) throw new InternalError('the HTTP pool takes addresses, not Request objects');
      const { body, method = 'GET', headers, signal } = init;
      const sent = await toBody(body ?? null);
      const reply = await exchangeWhole(connector.to(String(url)), String(url), {
        method: method === 'POST' ? 'POST' : 'GET',
        headers: { ...toHeaders(headers), ...sent.headers },
        body: sent.body,
        signal: signal ?? null,
      });
      const text = redact(decoder.decode(reply.body));
      return new TextResponse(reply.status, new TextHeaders(reply.headers, redact), text);
    },
    close: () => (closing ??= connector.close()),
  };
}

/** A text as it is, or a form with its files. */
async function toBody(
  body: NonNullable<RequestInit['body']> | null,
): Promise<{ readonly body: string | Buffer | null; readonly headers: Record<string, string> }> {
  if (body === null || typeof body === 'string') return { body, headers: {} };
  if (!(body instanceof FormData)) throw new InternalError('the HTTP pool sends only texts and forms');
  const form = new Response(body);
  const bytes = Buffer.from(await form.arrayBuffer());
  return { body: bytes, headers: { 'content-type': form.headers.get('content-type') ?? '' } };
}

/** The platform's error for an invalid header quotes the header with its key. This one does not. */
function toHeaders(headers: RequestInit['headers']): Record<string, string> {
  try {
    return Object.fromEntries(headers instanceof Headers ? headers : new Headers(headers));
  } catch {
    throw new InternalError('a header of the request contains characters that HTTP cannot carry');
  }
}

interface Connector {
  /** The dispatcher for requests to this address. */
  readonly to: (url: string) => Dispatcher;
  /** Closes idle connections and rejects further requests. */
  readonly close: () => Promise<void>;
}

const SCHEMES: readonly string[] = ['http:', 'https:', 'socks5:', 'socks:'];

/** Addresses of this machine never use a proxy. Raises ConfigError if a variable is not the address of a proxy. */
function createConnector(options: Agent.Options & { readonly connect: { readonly timeout: number } }): Connector {
  const direct = new Agent(options);
  const [httpProxy, httpsProxy] = ['HTTP_PROXY', 'HTTPS_PROXY'].map(proxyOf);
  if (httpProxy === '' && httpsProxy === '') return { to: () => direct, close: () => direct.close() };
  const proxied = new EnvHttpProxyAgent({
    ...options,
    httpProxy,
    httpsProxy: httpsProxy === '' ? httpProxy : httpsProxy,
    noProxy: variable('NO_PROXY').text,
    // A proxy forwards requests to http servers. Many tunnel to port 443 only.
    proxyTunnel: false,
    proxyTls: options.connect,
    requestTls: options.connect,
    // Without it, undici's own connections to a proxy would have no options.
    factory: (origin, given) => new Pool(origin, { ...options, ...given }),
  });
  return {
    to: (url) => (isLoopback(new URL(url).hostname) ? direct : proxied),
    close: async () => {
      await Promise.all([direct.close(), proxied.close()]);
    },
  };
}

/** The value of a variable, in lower or upper case. Empty if neither is set. */
function variable(name: string): { readonly name: string; readonly text: string } {
  const found = [name.toLowerCase(), name].find((spelled) => (process.env[spelled] ?? '') !== '') ?? name;
  return { name: found, text: process.env[found] ?? '' };
}

/** The message does not quote the value, which may contain a password. */
function proxyOf(given: string): string {
  const { name, text } = variable(given);
  if (text === '' || (URL.canParse(text) && SCHEMES.includes(new URL(text).protocol))) return text;
  throw new ConfigError('not the address of a proxy; allowed: http://, https:// or socks5://, host and port', {
    where: name,
    next: `Write it like http://proxy.example:3128, or run: unset ${name}`,
  });
}
