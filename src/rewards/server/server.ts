/**
 * The reward server: heavy rewards (text recognition, CLIP) and the way to a judge, behind HTTP, so that they live outside the trainer.
 * `POST /score`, `GET /health`, `GET /metrics`. Nothing in a request opens a file or an address.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { listen } from '../../http/listen.js';
import type { Clock } from '../../core/clock.js';
import { sleep, systemClock } from '../../core/clock.js';
import type { CanaryResult } from '../judge/client.js';
import { HeldBytes, readBody } from '../../http/body.js';
import { Connections } from '../../http/connections.js';
import { Guard, requireToken } from '../../http/guard.js';
import { defaultLimits, type ServerLimits } from './limits.js';
import { ServerMetrics } from './metrics.js';
import { Refusal } from '../../http/refusal.js';
import { parseScoreRequest } from './request.js';
import { ItemScorer, type ServedReward } from './scorer.js';
import type { HealthReply } from './wire.js';

export interface RewardServerOptions {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  /** Null only where nobody but this machine's programs can ask. */
  readonly token: string | null;
  readonly reward: ServedReward;
  readonly limits?: Partial<ServerLimits>;
  readonly clock?: Clock;
  /** Told of what a term (or the server itself) raised and may not raise. */
  readonly onDefect?: (error: unknown) => void;
}

export interface RunningRewardServer {
  readonly url: string;
  readonly port: number;
  /** Takes nothing more, waits for what is under way (at most `drainTimeoutMs`), then drops what is left. */
  close(): Promise<void>;
}

/** Raises ConfigError for an address that needs a token and has none, EndpointError for one that is taken or not this machine's. */
export async function startRewardServer(options: RewardServerOptions): Promise<RunningRewardServer> {
  requireToken(options.host, options.token);
  const service = new Service(options);
  const { limits } = service;
  const server = createServer(
    {
      maxHeaderSize: 16 * 1024,
      headersTimeout: limits.headersTimeoutMs,
      requestTimeout: limits.requestTimeoutMs,
      connectionsCheckingInterval: limits.timeoutCheckMs,
      // Clients that pause between iterations close their connections first; a server that does makes every reuse a race.
      keepAliveTimeout: 120_000,
    },
    (request, response) => void service.serve(request, response),
  );
  server.maxConnections = limits.connections;
  server.on('connection', (socket) => service.connections.opened(socket));
  const port = await listen(server, 'the reward server', options.port, options.host);
  const host = options.host.includes(':') ? `[${options.host}]` : options.host;
  return { url: `http://${host}:${port}`, port, close: () => service.drain(server) };
}

interface Reply {
  readonly status: number;
  readonly type: string;
  readonly text: string;
  readonly headers?: Readonly<Record<string, string>>;
}

type Handler = (request: IncomingMessage, response: ServerResponse) => Promise<Reply> | Reply;

class Service {
  readonly limits: ServerLimits;
  readonly connections = new Connections();
  readonly #reward: ServedReward;
  readonly #guard: Guard;
  readonly #held: HeldBytes;
  readonly #metrics = new ServerMetrics();
  readonly #scorer: ItemScorer;
  readonly #clock: Clock;
  readonly #onDefect: (error: unknown) => void;
  #judgeAsked: Promise<CanaryResult> | null = null;
  #underWay = 0;
  #draining = false;

  constructor(options: RewardServerOptions) {
    this.limits = { ...defaultLimits, ...options.limits };
    this.#reward = options.reward;
    this.#guard = new Guard(options.token);
    this.#held = new HeldBytes(this.limits.heldBytes);
    this.#clock = options.clock ?? systemClock;
    this.#onDefect = options.onDefect ?? (() => undefined);
    this.#scorer = new ItemScorer(options.reward, this.limits, this.#clock, {
      onItem: (scored, seconds) => this.#metrics.countItem(scored, seconds),
      onDefect: this.#onDefect,
    });
  }

  /** By path and method. */
  readonly #routes: Readonly<Record<string, Readonly<Record<string, Handler>>>> = {
    '/score': { POST: (request, response) => this.#score(request, response) },
    '/health': { GET: (request) => this.#health(request) },
    '/metrics': { GET: (request) => this.#showMetrics(request) },
  };

  async serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.connections.busy(request.socket, response);
    const path = (request.url ?? '/').split('?', 1)[0];
    const known = Object.hasOwn(this.#routes, path) ? this.#routes[path] : undefined;
    let reply: Reply;
    try {
      if (known === undefined) {
        throw new Refusal('not_found', `There is nothing here; allowed: ${Object.keys(this.#routes).join(', ')}.`);
      }
      const method = request.method ?? '';
      const handler = Object.hasOwn(known, method) ? known[method] : undefined;
      if (handler === undefined) {
        const allow = Object.keys(known).join(', ');
        throw new Refusal('method_not_allowed', `${path} takes ${allow}.`, { allow });
      }
      reply = await handler(request, response);
    } catch (error) {
      reply = this.#refusal(error);
    }
    this.#metrics.countRequest(known === undefined ? 'other' : path, reply.status);
    send(request, response, reply, this.#draining);
  }

  /** Stops listening and waits for what is under way. */
  async drain(server: Server): Promise<void> {
    this.#draining = true;
    const closed = new Promise<void>((resolve) => server.close(() => resolve()));
    this.connections.dropIdle();
    const waiting = new AbortController();
    await Promise.race([closed, sleep(this.#clock, this.limits.drainTimeoutMs, waiting.signal)]);
    waiting.abort();
    server.closeAllConnections();
    await closed;
  }

  async #score(request: IncomingMessage, response: ServerResponse): Promise<Reply> {
    this.#guard.admit(request.headers);
    if (this.#draining) throw new Refusal('draining', 'The server is stopping.', { 'retry-after': '5' });
    if (this.#underWay >= this.limits.requests) {
      throw new Refusal('busy', `${this.#underWay} requests are under way, which is the most.`, { 'retry-after': '1' });
    }
    this.#underWay++;
    const gone = new AbortController();
    const onClose = (): void => gone.abort();
    response.once('close', onClose);
    try {
      const body = await readBody(request, this.limits.bodyBytes, this.#held);
      try {
        const asked = await parseScoreRequest(request.headers['content-type'], body.bytes, this.limits.items);
        const items = await this.#scorer.score(asked.items, gone.signal);
        const reward = this.#reward.digest;
        return json(200, asked.single ? { reward, ...items[0] } : { reward, items });
      } finally {
        body.release();
      }
    } finally {
      response.off('close', onClose);
      this.#underWay--;
    }
  }

  /** With `?judge`, a client that has the token learns whether the judge behind the terms answers, too: a small question puts it to the test. */
  async #health(request: IncomingMessage): Promise<Reply> {
    if (this.#draining) return json(503, { status: 'draining' } satisfies HealthReply);
    if (!this.#guard.knows(request.headers)) return json(200, { status: 'ok' } satisfies HealthReply);
    const { digest, terms } = this.#reward;
    const settings = { reward: digest, terms: terms.map(({ name, weight }) => ({ name, weight })) };
    const found = asksForJudge(request) ? await this.#askJudge() : null;
    if (found === null || found.ok) return json(200, { status: 'ok', ...settings } satisfies HealthReply);
    return json(503, { status: 'judge_away', detail: found.detail, ...settings } satisfies HealthReply);
  }

  /** Callers at the same time share one question. */
  #askJudge(): Promise<CanaryResult> | null {
    const { canary } = this.#reward;
    if (canary === undefined) return null;
    return (this.#judgeAsked ??= canary(AbortSignal.timeout(this.limits.judgeTimeoutMs)).finally(() => {
      this.#judgeAsked = null;
    }));
  }

  #showMetrics(request: IncomingMessage): Reply {
    this.#guard.admit(request.headers);
    const text = this.#metrics.toText({ requestsUnderWay: this.#underWay, heldBytes: this.#held.held });
    return { status: 200, type: 'text/plain; version=0.0.4; charset=utf-8', text };
  }

  #refusal(error: unknown): Reply {
    if (error instanceof Refusal) return json(error.status, error.body(), error.headers);
    this.#onDefect(error);
    const refusal = new Refusal('internal', 'The server failed; its log says why.');
    return json(refusal.status, refusal.body());
  }
}

function asksForJudge({ url = '/' }: IncomingMessage): boolean {
  return new URLSearchParams(url.split('?', 2)[1] ?? '').has('judge');
}

function json(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, type: 'application/json', text: JSON.stringify(body), headers };
}

/** How long the rest of a refused body is taken and thrown away, so that its sender comes to read the reply. */
const lingerMs = 2_000;

function send(request: IncomingMessage, response: ServerResponse, reply: Reply, last: boolean): void {
  if (response.destroyed || response.headersSent) return;
  const unread = !request.complete;
  response.writeHead(reply.status, {
    ...reply.headers,
    'content-type': reply.type,
    'content-length': Buffer.byteLength(reply.text),
    ...(unread || last ? { connection: 'close' } : {}),
  });
  if (!unread) {
    response.end(reply.text);
    return;
  }
  // Ending at once would reset the connection under a client that is still sending, and the reply would be lost.
  response.write(reply.text);
  const end = (): void => {
    clearTimeout(timer);
    response.end();
  };
  const timer = setTimeout(end, lingerMs);
  request.once('end', end).once('error', end).resume();
}
