/** What each path of the gateway answers. */
import { createHash } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { readChatBody } from './chat_body.js';
import { answerChat, notReady, refusedWhileStopping, type ChatServices } from './chat.js';
import type { CanaryFinding } from './drift.js';
import { bearerToken, mayAsk, readBody, sendBytes, sendJson, sendProblem } from './http.js';
import { runNamePattern, type GatewayOptions } from './options.js';
import { badRequest, GatewayProblem } from './problem.js';
import type { Upstream } from './upstream.js';

export interface GatewayState extends ChatServices {
  readonly options: GatewayOptions;
  readonly token: string | null;
  readonly upstreams: readonly Upstream[];
  /** What the last canary scoring of each upstream found. */
  readonly findings: ReadonlyMap<string, CanaryFinding>;
  /** Chat requests that have come and are not answered yet. */
  underWay: number;
  /** Bytes of the bodies of these requests. */
  heldBytes: number;
  draining: boolean;
  /** Called when the last request under way has been answered. */
  onIdle: () => void;
}

/** `run`: the name in the address, for callers who cannot send a header. */
type Route = (
  request: IncomingMessage,
  response: ServerResponse,
  state: GatewayState,
  run: string | undefined,
) => Promise<void> | void;

/** `/run/NAME/v1/...` is `/v1/...` asked by the run NAME. */
const runPrefix = /^(?:\/run\/([^/]+)(?=\/))?(.*)$/;

const routes: Readonly<Record<string, Route>> = {
  'GET /health': health,
  'GET /metrics': (request, response, state) => {
    requireToken(request, state);
    const { metrics, upstreams, dispatcher, findings, cache } = state;
    const page = metrics.render(upstreams, dispatcher, findings, cache?.size ?? null);
    sendBytes(response, 200, Buffer.from(page), 'text/plain; version=0.0.4; charset=utf-8');
  },
  'GET /v1/models': (request, response, state) => {
    requireToken(request, state);
    sendJson(response, 200, { object: 'list', data: listing(state).map(toEntry) });
  },
  'POST /v1/chat/completions': chat,
};

/** Answers one request; never rejects. */
export async function handle(request: IncomingMessage, response: ServerResponse, state: GatewayState): Promise<void> {
  try {
    const [, run, path] = runPrefix.exec(new URL(request.url ?? '/', 'http://gateway').pathname) ?? [];
    const route = routes[`${request.method ?? ''} ${path}`] as Route | undefined;
    if (route === undefined) {
      throw new GatewayProblem(404, 'NotFoundError', `There is no ${request.method} ${path} here.`);
    }
    await route(request, response, state, run);
  } catch (cause) {
    if (cause instanceof GatewayProblem) {
      sendProblem(response, cause);
      return;
    }
    const message = cause instanceof Error ? cause.message : String(cause);
    sendProblem(response, new GatewayProblem(500, 'InternalServerError', message));
  }
}

function requireToken(request: IncomingMessage, { token }: GatewayState): void {
  if (mayAsk(request, token)) return;
  throw new GatewayProblem(401, 'AuthenticationError', 'This gateway wants its token: Authorization: Bearer TOKEN.');
}

/** 200 where at least one upstream is ready, else 503. Details are for those who have the token. */
function health(request: IncomingMessage, response: ServerResponse, state: GatewayState): void {
  const { upstreams, dispatcher, findings, draining } = state;
  const ready = upstreams.some((upstream) => upstream.ready) && !draining;
  const status = draining ? 'draining' : ready ? 'ready' : 'waiting';
  const details = {
    why: draining ? 'it is being stopped' : ready ? null : notReady(upstreams).message,
    upstreams: upstreams.map((upstream) => ({
      url: upstream.url,
      state: upstream.state,
      found: upstream.found === '' ? null : upstream.found,
      models: upstream.models,
      in_flight: upstream.limit.inFlight,
      limit: upstream.limit.limit,
      cap: upstream.limit.cap,
      canary_drift: findings.get(upstream.url)?.drift ?? null,
    })),
    alarms: [...findings].flatMap(([url, { alarms }]) => alarms.map((alarm) => `${url}: ${alarm}`)),
    waiting: dispatcher.waiting,
    runs: Object.fromEntries(dispatcher.runs()),
  };
  sendJson(response, ready ? 200 : 503, mayAsk(request, state.token) ? { status, ...details } : { status });
}

/** The models of all ready upstreams; where none will ever be ready as things stand, what they list instead, so that a caller sees it. */
function listing({ upstreams, draining }: GatewayState): readonly string[] {
  if (draining) throw refusedWhileStopping();
  const ready = upstreams.filter((upstream) => upstream.ready);
  if (ready.length > 0) return [...new Set(ready.flatMap(({ models }) => models))];
  if (!upstreams.every(({ hopeless }) => hopeless)) throw notReady(upstreams);
  const listed = [...new Set(upstreams.flatMap(({ models }) => models))];
  if (listed.length > 0) return listed;
  throw new GatewayProblem(424, 'FailedDependency', notReady(upstreams).message);
}

function toEntry(id: string): unknown {
  return { id, object: 'model', created: 0, owned_by: 'editrl-gateway' };
}

async function chat(
  request: IncomingMessage,
  response: ServerResponse,
  state: GatewayState,
  inAddress: string | undefined,
): Promise<void> {
  const { options, metrics, cache, records } = state;
  let status = 500;
  let held = 0;
  state.underWay++;
  // It is under way until the reply has left, or the caller has.
  const caller = new AbortController();
  response.once('close', () => {
    // Aborting builds an error with a stack, which would cost a good reply more than anything else here.
    if (!response.writableFinished) caller.abort();
    state.underWay--;
    if (state.underWay === 0) state.onIdle();
  });
  try {
    requireToken(request, state);
    if (state.draining) throw refusedWhileStopping();
    const run = runOf(request, inAddress, state);
    const bytes = await readBody(request, options.maxBodyMb * 1e6);
    if (state.heldBytes + bytes.length > options.maxHeldMb * 1e6) {
      throw new GatewayProblem(429, 'RateLimitError', 'This gateway holds too many bodies.', { retryAfterS: 2 });
    }
    held = bytes.length;
    state.heldBytes += held;
    const body = await readChatBody(bytes, { maxImagePixels: options.maxImageMegapixels * 1e6 });
    // Whatever cannot be named is refused before anyone is asked.
    if (records !== null || (cache !== null && body.deterministic)) body.key();
    const address = request.socket.remoteAddress ?? '';
    const answer = await answerChat({ caller: address, run, chat: body, bytes, gone: caller.signal }, state);
    status = answer.status;
    sendBytes(response, status, answer.body, 'application/json', answer.headers);
  } catch (problem) {
    if (problem instanceof GatewayProblem) status = problem.status;
    throw problem;
  } finally {
    state.heldBytes -= held;
    metrics.requests.add({ status: String(status) });
  }
}

/** Whose quota a request counts against: the run that it names, else whoever has its key, else everyone who names nothing. */
function runOf(request: IncomingMessage, inAddress: string | undefined, { token }: GatewayState): string {
  const named = request.headers['x-run-name'] ?? inAddress;
  if (typeof named === 'string') {
    if (runNamePattern.test(named)) return named;
    throw badRequest(
      'x-run-name or /run/NAME is no run name: letters, digits, dot, underscore and hyphen, 96 at most.',
    );
  }
  const key = token === null ? bearerToken(request) : null;
  return key === null ? 'unnamed' : `key-${createHash('sha256').update(key).digest('hex').slice(0, 8)}`;
}
