/**
 * The HTTP server under gateway, reward server, rule judge and dashboard: a table of routes behind a guard, with limits on what it holds, stopped
 * within a time limit. It uses node:http alone, because all of this (bytes counted while they arrive over all requests, refusals that reach a client
 * that is still sending) lies below Fastify and Hono, and six paths need no router.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { sleep, systemClock, type Clock } from '../clock.js';
import { EndpointError } from '../errors.js';
import { Guard } from './guard.js';
import { Counts } from './prometheus.js';
import { HeldBytes, json, readBody, send, type Reply } from './held.js';
import { Refusal } from './refusal.js';

/** One request, as a handler sees it. */
export interface Call {
  readonly server: HttpServer;
  readonly request: IncomingMessage;
  readonly response: ServerResponse;
  /** The decoded rest of the path after a route that ends with a slash. */
  readonly rest: string;
  /** The part of the path between the server's prefix and the route; null if the path has no prefix. */
  readonly scope: string | null;
  readonly query: URLSearchParams;
  /** Whether it carries the token, or none is needed: false only in an open route. */
  readonly trusted: boolean;
  /** Aborted when the client goes away without its reply. */
  readonly gone: AbortSignal;
  /** The whole body; it counts as held until the reply is there. Raises Refusal. */
  readonly read: () => Promise<Buffer>;
}

/** Null if it has answered by itself. */
export type Handler = (call: Call) => Reply | null | Promise<Reply | null>;

export interface Route {
  readonly GET?: Handler;
  readonly POST?: Handler;
  /** Whether it answers without the token, and while the server is being stopped. */
  readonly open?: boolean;
}

export interface HttpLimits {
  /** Bytes of one body. */
  readonly bodyBytes: number;
  /** Bytes of all bodies that are held at once, arriving ones included; one body may have a quarter. */
  readonly heldBytes: number;
  /** Connections of clients with the token, or of all clients if none is required; see `Connections`. */
  readonly connections: number;
  /** The time in which a request's headers have to arrive, and a little later on a new connection a request with the token. */
  readonly headersTimeoutMs: number;
  /** The time in which a whole request has to arrive. */
  readonly requestTimeoutMs: number;
  /** The time in which a body has to come on by a megabyte, or to end. */
  readonly bodyWindowMs: number;
  /** How often the times of headers and whole requests are looked at. */
  readonly timeoutCheckMs: number;
  /** How long requests under way may continue when the server is told to stop. */
  readonly drainTimeoutMs: number;
}

export interface HttpServerOptions {
  /** Its name in messages, such as `the gateway`. */
  readonly name: string;
  /** The address to listen on. */
  readonly host: string;
  /** Null where every program may ask that reaches the address. */
  readonly token: string | null;
  /** By path. One that ends with a slash stands for all paths below it, except `/` alone, which stands for itself. */
  readonly routes: Readonly<Record<string, Route>>;
  /** Whether pages that this server served may send it requests; other pages never may. */
  readonly ownPages?: boolean;
  /** With `/run/` every path is also there as `/run/NAME/...`, where NAME is the call's scope. */
  readonly prefix?: string;
  readonly limits: HttpLimits;
  readonly clock?: Clock;
  /** Called with unexpected errors of handlers. */
  readonly onDefect: (error: unknown) => void;
}

const ANOTHER_PORT = 'Choose another --port (0 takes a free one).';
const ANOTHER_HOST = 'Choose another --host, such as 127.0.0.1.';

/** What is wrong with an address, and what to do, by the error's code. */
const REASONS: Readonly<Record<string, readonly [found: string, next: string]>> = {
  EADDRINUSE: ['another program uses this port', ANOTHER_PORT],
  EACCES: ['this user may not use this port', ANOTHER_PORT],
  EADDRNOTAVAIL: ['this machine does not have this address', ANOTHER_HOST],
  ENOTFOUND: ['this host name has no address', ANOTHER_HOST],
};

/** Clients keep connections between iterations; a server that closes them first makes every reuse a race. */
const keepAliveTimeoutMs = 600_000;

/** The same for all who go away: an error of their own would cost more than the rest of the reply. */
const goneAway = new Error('the client went away');

export class HttpServer {
  readonly node: Server;
  readonly held: HeldBytes;
  /** Replies by the path of their route (`other` for none) and status. */
  readonly replies = new Counts();
  readonly #guard: Guard;
  readonly #connections: Connections;
  /** Requests whose replies have not left, and who waits for that. */
  readonly #underWay = new Map<ServerResponse, (() => void)[]>();
  #draining = false;
  #closed: Promise<void> | null = null;

  /** Raises ConfigError for an address that needs a token and has none, and for a token that cannot be one. */
  constructor(private readonly options: HttpServerOptions) {
    const { host, token, limits, ownPages = false } = options;
    this.#guard = new Guard(host, token, ownPages);
    this.held = new HeldBytes(limits.heldBytes);
    this.node = createServer(
      {
        maxHeaderSize: 16 * 1024,
        headersTimeout: limits.headersTimeoutMs,
        requestTimeout: limits.requestTimeoutMs,
        connectionsCheckingInterval: limits.timeoutCheckMs,
        keepAliveTimeout: keepAliveTimeoutMs,
      },
      (request, response) => void this.#serve(request, response),
    );
    // Node answers late headers with 408, which is better than to break off.
    const strangerMs = limits.headersTimeoutMs + 2 * limits.timeoutCheckMs;
    this.#connections = new Connections(limits.connections, strangerMs);
    this.node.prependListener('connection', (socket) => this.#connections.open(socket));
  }

  get draining(): boolean {
    return this.#draining;
  }

  /** Requests whose replies have not left yet. */
  get underWay(): number {
    return this.#underWay.size;
  }

  /** Returns `http://HOST:PORT`; port 0 takes a free one. Raises EndpointError if the address is taken or not this machine's. */
  async listen(port: number): Promise<string> {
    const { name, host } = this.options;
    await new Promise<void>((resolve, reject) => {
      this.node.once('error', reject).listen(port, host, () => {
        this.node.off('error', reject);
        resolve();
      });
    }).catch((cause: unknown) => {
      const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
      const [found, next] = REASONS[code] ?? ['the address cannot be used', `${ANOTHER_PORT} ${ANOTHER_HOST}`];
      throw new EndpointError(`${name} cannot listen here: ${found} (${code})`, {
        where: `${host}:${port}`,
        next,
        cause,
      });
    });
    return `http://${host.includes(':') ? `[${host}]` : host}:${(this.node.address() as AddressInfo).port}`;
  }

  /** Refuses further requests, waits until those under way have ended or their time is over, then closes. */
  async drain(): Promise<void> {
    this.#draining = true;
    const left = [...this.#underWay.values()].map((waiting) => new Promise<void>((resolve) => waiting.push(resolve)));
    const over = new AbortController();
    const limit = sleep(this.options.clock ?? systemClock, this.options.limits.drainTimeoutMs, over.signal);
    await Promise.race([Promise.all(left), limit]);
    over.abort();
    await this.close();
  }

  /** Drops whatever is under way. */
  close(): Promise<void> {
    return (this.#closed ??= new Promise((resolve) => {
      this.node.close(() => resolve());
      this.node.closeAllConnections();
    }));
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const gone = this.#follow(request.socket, response);
    const hold = this.held.hold();
    const found = this.#find(request.url ?? '/');
    let reply: Reply | null;
    try {
      const { headers, method = '' } = request;
      const { route, rest, scope, query } = found;
      this.#guard.refusePages(headers);
      const trusted = this.#guard.knows(headers);
      if (trusted) this.#keep(request.socket, response);
      if (route === null) {
        throw new Refusal(
          'not_found',
          `There is nothing here; there are: ${Object.keys(this.options.routes).join(', ')}.`,
        );
      }
      const handler = handlerOf(route, method);
      if (route.open !== true) {
        this.#guard.admit(headers);
        if (this.#draining) {
          throw new Refusal('unavailable', `${this.options.name} is being stopped.`, { retryAfterS: 5 });
        }
      }
      const { bodyBytes, bodyWindowMs: windowMs } = this.options.limits;
      const { most } = this.held;
      const bytes = Math.min(bodyBytes, most);
      const read = (): Promise<Buffer> => readBody(request, { bytes, most, windowMs }, hold);
      reply = await handler({ server: this, request, response, rest, scope, query, trusted, gone, read });
    } catch (error) {
      reply = this.#refusal(error);
    } finally {
      hold.release();
    }
    if (reply === null) {
      if (!response.closed) response.once('close', this.#connections.stream(request.socket));
      return;
    }
    this.replies.add({ path: found.path, status: String(reply.status) });
    try {
      send(request, response, reply, this.#draining, this.held);
    } catch (error) {
      // A header that cannot be sent: the client learns by its connection, and nobody else.
      this.options.onDefect(error);
      request.socket.destroy();
    }
  }

  /**
   * Counts a request as under way until its reply has left or its connection is gone; the signal is aborted where the client goes without
   * its reply. Node closes no response of a pipelined request whose turn has not come, so that the connection is looked at, too.
   */
  #follow(socket: Socket, response: ServerResponse): AbortSignal {
    const gone = new AbortController();
    const waiting: (() => void)[] = [];
    this.#underWay.set(response, waiting);
    const end = (): void => {
      response.off('close', end);
      socket.off('close', end);
      if (!this.#underWay.delete(response)) return;
      if (!response.writableFinished) gone.abort(goneAway);
      for (const resolve of waiting) resolve();
    };
    response.once('close', end);
    // As many as are pipelined, which is not a leak.
    socket.setMaxListeners(0);
    socket.once('close', end);
    return gone.signal;
  }

  /** A client with the token has a place until its connection ends. Raises Refusal if there is none. */
  #keep(socket: Socket, response: ServerResponse): void {
    if (!this.#connections.trust(socket)) {
      throw new Refusal('busy', 'Requests are under way over all connections.', { retryAfterS: 1 });
    }
    response.once('close', this.#connections.begin(socket));
  }

  /** Never raises, whatever stands in the request's first line. */
  #find(url: string): {
    readonly path: string;
    readonly route: Route | null;
    readonly rest: string;
    readonly scope: string | null;
    readonly query: URLSearchParams;
  } {
    const { routes, prefix } = this.options;
    const [target, search = ''] = url.replace(/^https?:\/\/[^/?]*/, '').split('?', 2);
    const query = new URLSearchParams(search);
    const end = prefix !== undefined && target.startsWith(prefix) ? target.indexOf('/', prefix.length + 1) : -1;
    const scope = prefix === undefined || end === -1 ? null : target.slice(prefix.length, end);
    const asked = end === -1 ? target : target.slice(end);
    if (Object.hasOwn(routes, asked) && isWhole(asked)) {
      return { path: asked, route: routes[asked], rest: '', scope, query };
    }
    const above = Object.keys(routes).find((path) => !isWhole(path) && asked.startsWith(path));
    const rest = above === undefined ? '' : decoded(asked.slice(above.length));
    if (above === undefined || rest === '') return { path: 'other', route: null, rest: '', scope, query };
    return { path: above, route: routes[above], rest, scope, query };
  }

  #refusal(error: unknown): Reply {
    let refusal: Refusal;
    if (error instanceof Refusal) {
      refusal = error;
    } else {
      this.options.onDefect(error);
      refusal = new Refusal('internal', 'The server failed; its log says why.');
    }
    return json(refusal.status, refusal.body(), refusal.headers);
  }
}

const methods = ['GET', 'POST'] as const;

/** Raises Refusal 405 for a method that the route does not take. */
function handlerOf(route: Route, asked: string): Handler {
  const taken = methods.filter((method) => route[method] !== undefined);
  const method = taken.find((name) => name === asked);
  const handler = method === undefined ? undefined : route[method];
  if (handler !== undefined) return handler;
  const allow = taken.join(', ');
  throw new Refusal('method_not_allowed', `This path takes ${allow}.`, { headers: { allow } });
}

/** Whether a route's path stands for itself. */
function isWhole(path: string): boolean {
  return path === '/' || !path.endsWith('/');
}

/** Empty if it cannot be decoded. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return '';
  }
}

/**
 * Strangers have this share of places beside the others, and replies that stay open, such as event streams, this share of all. It has to be larger than
 * the number of connections that can be accepted before the first request of one of them is read.
 */
const SHARE = 1 / 4;

/**
 * Which connections a server keeps. A connection belongs to a stranger until a request with the token comes over it. Strangers have a small share and a
 * short life, and the newest of them gets in, so however many come, a client with the token reaches the server.
 */
class Connections {
  /** In the order in which they came, with the timer of each one's end. */
  readonly #strangers = new Map<Socket, NodeJS.Timeout>();
  /** With the number of requests under way, the longest idle first. */
  readonly #known = new Map<Socket, number>();
  /** Streams, the oldest first. */
  readonly #streams = new Set<Socket>();
  readonly #share: number;

  /**
   * @param limit connections of clients with the token.
   * @param strangerMs the life of a connection over which no request with the token comes.
   */
  constructor(
    private readonly limit: number,
    private readonly strangerMs: number,
  ) {
    this.#share = Math.max(1, Math.floor(limit * SHARE));
  }

  /** A new connection. */
  open(socket: Socket): void {
    const timer = setTimeout(() => socket.destroy(), this.strangerMs).unref();
    this.#strangers.set(socket, timer);
    socket.once('close', () => this.#forget(socket));
    const [oldest] = this.#strangers.keys();
    if (this.#strangers.size > this.#share) this.#drop(oldest);
  }

  /** A request with the token came over it. Returns false if there is no place for it because requests are under way over all others. */
  trust(socket: Socket): boolean {
    const timer = this.#strangers.get(socket);
    if (timer === undefined) return true;
    if (this.#known.size >= this.limit) {
      const idle = [...this.#known].find(([, requests]) => requests === 0);
      if (idle === undefined) return false;
      this.#drop(idle[0]);
    }
    clearTimeout(timer);
    this.#strangers.delete(socket);
    this.#known.set(socket, 0);
    return true;
  }

  /** A request that is under way; call the returned function when it has ended. */
  begin(socket: Socket): () => void {
    const count = (by: number): void => {
      const requests = this.#known.get(socket);
      // The latest goes last.
      if (this.#known.delete(socket)) this.#known.set(socket, (requests ?? 0) + by);
    };
    count(1);
    return () => count(-1);
  }

  /** Its reply stays open, until the returned function is called. The oldest stream gives way to one too many. */
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
    clearTimeout(this.#strangers.get(socket));
    for (const kept of [this.#strangers, this.#known, this.#streams]) kept.delete(socket);
  }
}
