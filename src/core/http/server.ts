/**
 * The HTTP server under gateway, reward server, rule judge and dashboard: a table of routes behind a guard, with limits on memory, time and
 * connections. It uses node:http alone: these limits lie below the frameworks, and six paths need no router.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { sleep, systemClock, type Clock } from '../clock.js';
import { EndpointError } from '../errors.js';
import { HeldBytes, json, readBody, readLines, send, type HeldLine, type Reply } from './body.js';
import { Guard } from './guard.js';
import { Counts } from './prometheus.js';
import { Refusal } from './refusal.js';

/** One request, as a handler sees it. */
export interface Call {
  readonly server: HttpServer;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The decoded rest of the path after a route that ends with a slash. */
  readonly rest: string;
  /** The part of the path between the server's prefix and the route. Null if the path has no prefix. */
  readonly scope: string | null;
  readonly query: URLSearchParams;
  /** Whether the request carries the token, or no token is required. False only in open routes. */
  readonly trusted: boolean;
  /** Aborted when the client disconnects without its reply. */
  readonly gone: AbortSignal;
  /** The whole body, which counts as held until the reply exists. Raises Refusal. */
  readonly read: () => Promise<Buffer>;
  /** The lines of the body as they arrive, each within the limits of one body. Raises Refusal. */
  readonly lines: () => AsyncGenerator<HeldLine, void>;
}

/** Returns null if it has written the response itself. */
export type Handler = (call: Call) => Reply | null | Promise<Reply | null>;

export interface Route {
  readonly GET?: Handler;
  readonly POST?: Handler;
  /** Whether the route answers without the token, and while the server is draining. */
  readonly open?: boolean;
}

export interface HttpLimits {
  /** Bytes of one body. */
  readonly bodyBytes: number;
  /** Bytes of all bodies and unread replies. One body may have a quarter. */
  readonly heldBytes: number;
  /** Connections of trusted clients. */
  readonly connections: number;
  /** The time for a request's headers, and for the first trusted request on a new connection. */
  readonly headersTimeoutMs: number;
  /** The time for a whole request that is not read by lines. */
  readonly requestTimeoutMs: number;
  /** The time in which a body must grow by a megabyte, or end. */
  readonly bodyWindowMs: number;
  /** Interval of the checks of both timeouts. */
  readonly timeoutCheckMs: number;
  /** Milliseconds that requests in flight may continue while the server drains. */
  readonly drainTimeoutMs: number;
}

interface HttpServerOptions {
  /** For messages, such as `the gateway`. */
  readonly name: string;
  readonly host: string;
  /** Null admits every program that reaches the address. */
  readonly token: string | null;
  /** By path. A path that ends with a slash also matches all paths below it, except `/` alone. */
  readonly routes: Readonly<Record<string, Route>>;
  /** Whether pages that this server served may send requests. */
  readonly ownPages?: boolean;
  /** With `/run/`, every path is also available as `/run/NAME/...`, where NAME is the call's scope. */
  readonly prefix?: string;
  readonly limits: HttpLimits;
  readonly clock?: Clock;
  /** Called with unexpected errors of handlers. */
  readonly onDefect: (error: unknown) => void;
}

const ANOTHER_PORT = 'Choose another --port (0 takes a free one).';
const ANOTHER_HOST = 'Choose another --host, such as 127.0.0.1.';

/** The problem of an address and advice, by error code. */
const ADDRESS_ERRORS: Readonly<Record<string, readonly [found: string, next: string]>> = {
  EADDRINUSE: ['another program uses this port', ANOTHER_PORT],
  EACCES: ['this user may not use this port', ANOTHER_PORT],
  EADDRNOTAVAIL: ['this machine does not have this address', ANOTHER_HOST],
  ENOTFOUND: ['this host name has no address', ANOTHER_HOST],
};

/** Clients keep connections between iterations. A server that closes them first makes every reuse a race. */
const KEEP_ALIVE_TIMEOUT_MS = 600_000;

/** One object for all: creating an error costs more than the rest of the reply. */
const disconnected = new Error('the client disconnected');

export class HttpServer {
  readonly node: Server;
  readonly held: HeldBytes;
  /** Replies by the path of their route (`other` for none) and status. */
  readonly replies = new Counts();
  readonly #guard: Guard;
  readonly #connections: Connections;
  /** Requests whose replies have not been sent. */
  readonly #inFlight = new Set<ServerResponse>();
  #draining = false;
  #onIdle = (): void => undefined;
  #closed: Promise<void> | null = null;

  /** Raises the ConfigErrors of `requireToken`. */
  constructor(private readonly options: HttpServerOptions) {
    const { host, token, limits, ownPages = false } = options;
    this.#guard = new Guard(host, token, ownPages);
    this.held = new HeldBytes(limits.heldBytes);
    this.node = createServer(
      {
        maxHeaderSize: 16 * 1024,
        headersTimeout: limits.headersTimeoutMs,
        // Reading the body has its own limits, because the lines of a stream arrive for as long as they are wanted.
        requestTimeout: 0,
        connectionsCheckingInterval: limits.timeoutCheckMs,
        keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
      },
      (request, response) => void this.#serve(request, response),
    );
    // Node answers late headers with 408, which is better than a closed connection.
    const untrustedMs = limits.headersTimeoutMs + 2 * limits.timeoutCheckMs;
    this.#connections = new Connections(limits.connections, untrustedMs);
    this.node.prependListener('connection', (socket) => this.#connections.open(socket));
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** Requests whose replies have not been sent. */
  get inFlight(): number {
    return this.#inFlight.size;
  }

  /** Returns `http://HOST:PORT`. Port 0 takes a free one. Raises EndpointError if the address cannot be used. */
  async listen(port: number): Promise<string> {
    const { name, host } = this.options;
    try {
      await new Promise<void>((resolve, reject) => {
        this.node.once('error', reject).listen(port, host, () => {
          this.node.off('error', reject);
          resolve();
        });
      });
    } catch (cause) {
      const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
      const [found, next] = ADDRESS_ERRORS[code] ?? ['the address cannot be used', `${ANOTHER_PORT} ${ANOTHER_HOST}`];
      throw new EndpointError(`${name} cannot listen: ${found} (${code})`, { where: `${host}:${port}`, next, cause });
    }
    return `http://${host.includes(':') ? `[${host}]` : host}:${(this.node.address() as AddressInfo).port}`;
  }

  /** Rejects further requests, waits until none is in flight or the time is over, then closes. */
  async drain(): Promise<void> {
    this.#draining = true;
    const over = new AbortController();
    this.#onIdle = () => over.abort();
    if (this.inFlight > 0) {
      await sleep(this.options.clock ?? systemClock, this.options.limits.drainTimeoutMs, over.signal);
    }
    await this.close();
  }

  /** Drops everything in flight. */
  close(): Promise<void> {
    return (this.#closed ??= new Promise((resolve) => {
      this.node.close(() => resolve());
      this.node.closeAllConnections();
    }));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { socket } = request;
    const gone = this.#follow(socket, response);
    const hold = this.held.hold();
    const target = this.#find(request.url ?? '/');
    let reply: Reply | null;
    try {
      const { rest, scope, query } = target;
      const trusted = this.#admit(request, response, target.route);
      const handler = handlerOf(target.route, request.method ?? '', Object.keys(this.options.routes));
      const { bodyBytes, bodyWindowMs: windowMs, requestTimeoutMs: wholeMs } = this.options.limits;
      const { most } = this.held;
      const limits = { bytes: Math.min(bodyBytes, most), most, windowMs, wholeMs };
      const read = (): Promise<Buffer> => readBody(request, limits, hold);
      const lines = (): AsyncGenerator<HeldLine, void> => readLines(request, limits, this.held);
      reply = await handler({ server: this, request, response, rest, scope, query, trusted, gone, read, lines });
    } catch (error) {
      if (!(error instanceof Refusal)) this.options.onDefect(error);
      const refusal =
        error instanceof Refusal ? error : new Refusal('internal', 'The server failed. Its log contains the reason.');
      reply = json(refusal.status, refusal.body(), refusal.headers);
    } finally {
      hold.release();
    }
    if (reply === null) {
      if (!response.closed) response.once('close', this.#connections.stream(socket));
      return;
    }
    this.replies.add({ path: target.path, status: String(reply.status) });
    try {
      send(request, response, reply, this.#draining, this.held);
    } catch (error) {
      // A header that cannot be sent costs this connection alone.
      this.options.onDefect(error);
      socket.destroy();
    }
  }

  /** Returns whether the request is trusted. Raises Refusal if it is not allowed. */
  #admit({ headers, socket }: IncomingMessage, response: ServerResponse, route: Route | null): boolean {
    this.#guard.rejectPages(headers);
    const trusted = this.#guard.isTrusted(headers);
    if (trusted) {
      if (!this.#connections.trust(socket)) {
        throw new Refusal('busy', 'Requests are in flight on all connections.', { retryAfterS: 1 });
      }
      response.once('close', this.#connections.begin(socket));
    }
    if (route !== null && route.open !== true) {
      this.#guard.requireTrusted(headers);
      if (this.#draining) throw new Refusal('unavailable', `${this.options.name} is stopping.`, { retryAfterS: 5 });
    }
    return trusted;
  }

  /**
   * Counts a request as in flight until its reply is sent or its connection is closed. The signal aborts if the client disconnects first.
   * Node closes no response of a pipelined request whose turn has not come, so the connection is watched, too.
   */
  #follow(socket: Socket, response: ServerResponse): AbortSignal {
    const gone = new AbortController();
    this.#inFlight.add(response);
    const end = (): void => {
      response.off('close', end);
      socket.off('close', end);
      if (!this.#inFlight.delete(response)) return;
      if (!response.writableFinished) gone.abort(disconnected);
      if (this.inFlight === 0) this.#onIdle();
    };
    response.once('close', end);
    // One listener for each pipelined request, which is not a leak.
    socket.setMaxListeners(0);
    socket.once('close', end);
    return gone.signal;
  }

  /** Never raises, whatever the request's first line contains. */
  #find(url: string): Pick<Call, 'rest' | 'scope' | 'query'> & { readonly path: string; readonly route: Route | null } {
    const { routes, prefix } = this.options;
    const [target, search = ''] = url.replace(/^https?:\/\/[^/?]*/, '').split('?', 2);
    const query = new URLSearchParams(search);
    const end = prefix !== undefined && target.startsWith(prefix) ? target.indexOf('/', prefix.length + 1) : -1;
    const scope = prefix === undefined || end === -1 ? null : target.slice(prefix.length, end);
    const path = end === -1 ? target : target.slice(end);
    if (Object.hasOwn(routes, path) && isExact(path)) return { path, route: routes[path], rest: '', scope, query };
    const above = Object.keys(routes).find((each) => !isExact(each) && path.startsWith(each)) ?? '';
    const rest = above === '' ? '' : decoded(path.slice(above.length));
    if (rest === '') return { path: 'other', route: null, rest, scope, query };
    return { path: above, route: routes[above], rest, scope, query };
  }
}

/** Raises Refusal 404 or 405. */
function handlerOf(route: Route | null, method: string, paths: readonly string[]): Handler {
  if (route === null) throw new Refusal('not_found', `Unknown path; available: ${paths.join(', ')}.`);
  const handler = method === 'GET' || method === 'POST' ? route[method] : undefined;
  if (handler !== undefined) return handler;
  const allow = (['GET', 'POST'] as const).filter((name) => route[name] !== undefined).join(', ');
  throw new Refusal('method_not_allowed', `This path takes ${allow}.`, { headers: { allow } });
}

/** Whether a route matches only its own path. */
function isExact(path: string): boolean {
  return path === '/' || !path.endsWith('/');
}

/** Empty if the text cannot be decoded. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}

/**
 * The share of connections for untrusted clients, in addition to the others, and for streams. It must exceed the number of connections that can be
 * accepted before the first request of one of them is read.
 */
const SHARE = 1 / 4;

/**
 * Which connections a server keeps. A connection is untrusted until a request with the token arrives on it. Untrusted connections have a small
 * share and a short life, and the newest replaces the oldest. So a trusted client reaches the server however many of them there are.
 */
class Connections {
  /** In order of arrival, with their timers. */
  readonly #untrusted = new Map<Socket, NodeJS.Timeout>();
  /** With the number of requests in flight, the longest idle first. */
  readonly #trusted = new Map<Socket, number>();
  /** The oldest first. */
  readonly #streams = new Set<Socket>();
  readonly #share: number;

  /**
   * @param limit trusted connections.
   * @param untrustedMs the life of a connection without a trusted request.
   */
  constructor(
    private readonly limit: number,
    private readonly untrustedMs: number,
  ) {
    this.#share = Math.max(1, Math.floor(limit * SHARE));
  }

  open(socket: Socket): void {
    const timer = setTimeout(() => socket.destroy(), this.untrustedMs).unref();
    this.#untrusted.set(socket, timer);
    socket.once('close', () => this.#forget(socket));
    const [oldest] = this.#untrusted.keys();
    if (this.#untrusted.size > this.#share) this.#drop(oldest);
  }

  /** Returns false if there is no room because requests are in flight on all other connections. */
  trust(socket: Socket): boolean {
    const timer = this.#untrusted.get(socket);
    if (timer === undefined) return true;
    if (this.#trusted.size >= this.limit) {
      const idle = [...this.#trusted].find(([, requests]) => requests === 0);
      if (idle === undefined) return false;
      this.#drop(idle[0]);
    }
    clearTimeout(timer);
    this.#untrusted.delete(socket);
    this.#trusted.set(socket, 0);
    return true;
  }

  /** Counts a request as in flight until the returned function is called. */
  begin(socket: Socket): () => void {
    const count = (by: number): void => {
      const requests = this.#trusted.get(socket);
      // The latest goes last.
      if (this.#trusted.delete(socket)) this.#trusted.set(socket, (requests ?? 0) + by);
    };
    count(1);
    return () => count(-1);
  }

  /** Counts a reply as a stream until the returned function is called. A stream too many replaces the oldest. */
  stream(socket: Socket): () => void {
    this.#streams.add(socket);
    const [oldest] = this.#streams;
    if (this.#streams.size > this.#share) this.#drop(oldest);
    return () => void this.#streams.delete(socket);
  }

  #drop(socket: Socket): void {
    this.#forget(socket);
    socket.destroy();
  }

  #forget(socket: Socket): void {
    clearTimeout(this.#untrusted.get(socket));
    for (const kept of [this.#untrusted, this.#trusted, this.#streams]) kept.delete(socket);
  }
}
