/**
 * The gateway: an OpenAI-compatible server in front of equal judges. It queues requests that they cannot take, switches to the others when one fails,
 * and reports metrics. Request bodies are passed on byte by byte.
 */
import { ConfigError } from '../../core/errors.js';
import { tooFewFiles } from '../../core/process.js';
import { requireToken, bearerToken } from '../../core/http/guard.js';
import { checkedKey } from '../../core/http/key.js';
import { type Clock, allowManyListeners, systemClock } from '../../core/clock.js';
import { leavableFields } from '../judge/dialect.js';
import { resolveEndpoints } from '../judge/endpoints.js';
import { createHttpPool } from '../../core/http/pool.js';
import { checkJudge, type JudgeNames, type JudgeCheck, type JudgeCheckContext } from '../judge/readiness.js';
import { Dispatcher } from './dispatcher.js';
import { HttpServer, type Call, type Route } from '../../core/http/server.js';
import { GatewayMetrics } from './metrics.js';
import { gatewayOptionsSchema, type GatewayOptions, type GatewayOptionsInput, runNamePattern } from './options.js';
import { Upstream, UpstreamWatch } from './upstream.js';
import { createHash } from 'node:crypto';
import { Semaphore } from '../../core/semaphore.js';
import { badRequest, Refusal } from '../../core/http/refusal.js';
import { json, metricsPage, type Reply } from '../../core/http/body.js';
import { readChatModel, answerChat, whyNotReady, type ChatServices } from './chat.js';

/** What the gateway uses besides its options; secrets are here, so that options can be shown. */
export interface GatewayServices {
  /** The token that callers have to send; null lets everyone ask, which is allowed only on a loopback address. */
  readonly token?: string | null;
  /** The key that the upstreams want. */
  readonly upstreamKey?: string | null;
  readonly log?: (level: 'info' | 'warn', text: string) => void;
  readonly clock?: Clock;
}

export interface RunningGateway {
  /** Base URL, `/v1` included. */
  readonly url: string;
  /** Resolves when the first upstream is ready. */
  readonly ready: Promise<void>;
  /** Refuses further requests with 503, lets those under way end while their time lasts, then closes. */
  drain(): Promise<void>;
  /** Closes at once. */
  close(): Promise<void>;
}

/** Starts the gateway; it listens when the promise resolves, while its upstreams may still be starting. Raises ConfigError for options that cannot work, EndpointError if it cannot listen. */
export async function startGateway(
  input: GatewayOptionsInput,
  services: GatewayServices = {},
): Promise<RunningGateway> {
  const options = readOptions(input);
  const { token = null, clock = systemClock, log = () => undefined } = services;
  requireToken(options.host, token);
  const upstreamKey = checkedKey(services.upstreamKey ?? undefined, "the upstreams' key") ?? null;
  const urls = upstreamUrls(options);
  const metrics = new GatewayMetrics();
  // A question takes a connection from its client and one to an upstream; the gateway's own files come on top.
  const few = tooFewFiles('the gateway', 2 * options.maxConcurrency + 128);
  if (few !== null) log('warn', few);
  const stop = new AbortController();
  // Every watch and every request under way listens to it, which is not a leak.
  allowManyListeners(stop.signal);
  // Room for the cap and one look at every upstream.
  const pool = createHttpPool({ connections: options.maxConcurrency + 1, secret: upstreamKey });
  const watches: UpstreamWatch[] = [];
  const found = new Map<string, JudgeCheck>();
  const upstreams = urls.map(
    (url, index) =>
      new Upstream(url, index, clock, options.maxConcurrency, options.breakerFailures, {
        onOpened: (upstream, why) => {
          log('warn', `${upstream.url} is left alone: ${why}`);
          dispatcher.upstreamsChanged();
          watches[upstream.index].wake();
        },
        onSuspected: (upstream) => watches[upstream.index].wake(),
      }),
  );
  const dispatcher = new Dispatcher(clock, upstreams, options);
  const timeoutMs = options.timeoutS * 1000;
  const shared = { clock, dispatcher, pool, upstreamKey, timeoutMs, metrics };
  let firstReady = (): void => undefined;
  const ready = new Promise<void>((resolve) => (firstReady = resolve));
  for (const upstream of upstreams) {
    watches.push(
      new UpstreamWatch(upstream, {
        clock,
        stop: stop.signal,
        look: async () => {
          const end = await dispatcher.acquireForCheck(upstream, stop.signal);
          try {
            const look = await lookForModel(upstream.url, options.model, {
              alias: options.modelAlias,
              names: flags,
              // A run leaves out what its judges refuse; this look needs none of it.
              leaveOut: leavableFields,
              clock,
              pool,
              signal: stop.signal,
              timeoutMs,
              ...(upstreamKey === null ? {} : { apiKey: upstreamKey }),
            });
            found.set(upstream.url, look);
            return look;
          } finally {
            end?.({ load: 'nothing', health: 'nothing' });
          }
        },
        onChange: () => {
          dispatcher.upstreamsChanged();
          if (upstream.ready) firstReady();
        },
        log,
      }),
    );
  }
  const state: GatewayState = {
    ...shared,
    options,
    token,
    upstreams,
    looks: found,
  };
  const bodyBytes = options.maxBodyMb * 1e6;
  const server = new HttpServer({
    name: 'the gateway',
    host: options.host,
    token,
    routes: gatewayRoutes(state),
    prefix: '/run/',
    limits: {
      bodyBytes,
      heldBytes: options.maxHeldMb * 1e6,
      connections: 4096,
      headersTimeoutMs: 30_000,
      requestTimeoutMs: 120_000,
      bodyWindowMs: 20_000,
      timeoutCheckMs: 1_000,
      drainTimeoutMs: options.drainTimeoutS * 1000,
    },
    clock,
    onDefect: (error) =>
      log('warn', `ALARM ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`),
  });
  let watching: readonly Promise<void>[] = [];
  async function letGo(): Promise<void> {
    stop.abort();
    await Promise.all(watching);
    await pool.close();
  }
  let origin: string;
  try {
    origin = await server.listen(options.port);
  } catch (error) {
    await letGo();
    throw error;
  }
  watching = watches.map((watch) => watch.run());
  let closing: Promise<void> | null = null;
  async function closeAll(): Promise<void> {
    dispatcher.stop();
    stop.abort();
    await server.close();
    await letGo();
  }
  const close = (): Promise<void> => (closing ??= closeAll());
  return {
    url: `${origin}/v1`,
    ready,
    close,
    drain: async () => {
      dispatcher.stop();
      log('info', `draining: ${server.inFlight} requests are under way, further ones are refused`);
      await server.drain();
      await close();
    },
  };
}

function readOptions(input: GatewayOptionsInput): GatewayOptions {
  const parsed = gatewayOptionsSchema.safeParse(input);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map(({ path, message }) => `${path.join('.')}: ${message}`);
  throw new ConfigError(`the gateway's options cannot work: ${issues.join('; ')}`);
}

function upstreamUrls({ upstreams }: GatewayOptions): readonly string[] {
  try {
    return resolveEndpoints(upstreams);
  } catch (error) {
    if (!(error instanceof ConfigError)) throw error;
    throw new ConfigError(error.message, {
      where: '--upstream',
      ...(error.next === undefined ? {} : { next: error.next }),
    });
  }
}

const flags: JudgeNames = {
  judge: 'the judge',
  endpoint: '--upstream',
  model: '--model',
  allow: (name) => `add --model-alias${name === null ? '' : ` ${name}`}`,
  key: 'the variable of --upstream-key-env',
  start: 'Start it, or check host and port.',
};

/** Checks a server for this model, or for the first that it lists. A ready server lists the model. */
async function lookForModel(url: string, model: string | null, context: JudgeCheckContext): Promise<JudgeCheck> {
  if (model !== null) {
    const look = await checkJudge(url, model, context);
    if (look.state !== 'ready' || look.models.some(({ id }) => id === model)) return look;
    return { ...look, models: [{ id: model, root: null, maxModelLen: null }, ...look.models] };
  }
  const listing = await checkJudge(url, '', context);
  const first = listing.models?.at(0);
  // Nobody has asked for a specific model: callers decide whether its name is right.
  return first === undefined ? listing : checkJudge(url, first.id, { ...context, alias: true });
}

export interface GatewayState extends ChatServices {
  readonly options: GatewayOptions;
  readonly token: string | null;
  readonly upstreams: readonly Upstream[];
  /** What the last look at each upstream found. */
  readonly looks: ReadonlyMap<string, JudgeCheck>;
}

export function gatewayRoutes(state: GatewayState): Readonly<Record<string, Route>> {
  // One large body is parsed at a time, many small ones together: parsed, a body takes several times its bytes.
  const parsing = new Semaphore(state.options.maxBodyMb * 1e6);
  return {
    '/health': { open: true, GET: (call) => health(call, state) },
    '/metrics': {
      GET: ({ server }) => {
        const { metrics, upstreams, dispatcher } = state;
        return metricsPage(metrics.render(upstreams, dispatcher, server.replies.samples()));
      },
    },
    '/v1/models': { GET: () => json(200, { object: 'list', data: listing(state) }) },
    '/v1/models/': { GET: ({ rest }) => json(200, modelNamed(rest, listing(state))) },
    '/v1/chat/completions': { POST: (call) => chat(call, state, parsing) },
  };
}

/** 200 if at least one upstream is ready, else 503. Only callers with the token get details. */
function health({ trusted, server: { draining } }: Call, { upstreams, dispatcher }: GatewayState): Reply {
  const ready = upstreams.some((upstream) => upstream.ready) && !draining;
  const status = draining ? 'draining' : ready ? 'ready' : 'waiting';
  const details = {
    why: draining ? 'it is being stopped' : ready ? null : whyNotReady(upstreams).message,
    upstreams: upstreams.map((upstream) => ({
      url: upstream.url,
      state: upstream.state,
      found: upstream.found === '' ? null : upstream.found,
      models: upstream.models,
      in_flight: upstream.limit.inFlight,
      limit: upstream.limit.limit,
      cap: upstream.limit.cap,
    })),
    waiting: dispatcher.waiting,
    runs: Object.fromEntries(dispatcher.runs()),
  };
  return json(ready ? 200 : 503, trusted ? { status, ...details } : { status });
}

/** A model as `/v1/models` lists it. */
interface ModelEntry {
  readonly id: string;
}

/** The models of all ready upstreams; if none can become ready, what they list instead, so that a caller sees it. */
function listing({ upstreams, looks }: GatewayState): readonly ModelEntry[] {
  const ready = upstreams.filter((upstream) => upstream.ready);
  if (ready.length === 0 && !upstreams.every(({ hopeless }) => hopeless)) throw whyNotReady(upstreams);
  const listing = ready.length > 0 ? ready : upstreams;
  const ids = new Set(listing.flatMap(({ models }) => models));
  if (ids.size === 0) throw new Refusal('no_such_model_anywhere', whyNotReady(upstreams).message);
  const listed = listing.flatMap(({ url }) => looks.get(url)?.models ?? []);
  return [...ids].map((id) => {
    const same = listed.filter((model) => model.id === id);
    const lengths = same.flatMap(({ maxModelLen }) => (maxModelLen === null ? [] : [maxModelLen]));
    return {
      id,
      object: 'model',
      created: 0,
      owned_by: 'editrl-gateway',
      root: same.find(({ root }) => root !== null)?.root ?? id,
      // What fits here has to fit every judge.
      ...(lengths.length === 0 ? {} : { max_model_len: Math.min(...lengths) }),
    };
  });
}

function modelNamed(name: string, listed: readonly ModelEntry[]): ModelEntry {
  const found = listed.find(({ id }) => id === name);
  if (found !== undefined) return found;
  const known = listed.map(({ id }) => id).join(', ');
  throw new Refusal('not_found', `The model \`${name.slice(0, 200)}\` does not exist; known: ${known}.`, {
    param: 'model',
  });
}

async function chat(call: Call, state: GatewayState, parsing: Semaphore): Promise<Reply> {
  const { options } = state;
  const { gone } = call;
  const run = runOf(call, state);
  // A page in a browser can post other content types to a loopback address without a preflight request.
  if (!/^application\/json\b/i.test(call.request.headers['content-type'] ?? '')) {
    throw new Refusal('unsupported_media_type', 'The body has to be JSON: content-type application/json.');
  }
  const bytes = await call.read();
  const model = await parsing.run(
    () =>
      readChatModel(bytes, {
        maxImages: options.maxImages,
        maxImagePixels: options.maxImageMegapixels * 1e6,
        caller: gone,
      }),
    bytes.length,
  );
  const { status, body: text, headers } = await answerChat({ run, model, bytes, gone }, state);
  return { status, type: headers['content-type'] ?? 'application/json', body: text, headers };
}

/** The run whose quota a request counts against: the one it names, else the one for its key, else one shared by everyone who names nothing. */
function runOf({ request, scope }: Call, { token }: GatewayState): string {
  const named = request.headers['x-run-name'] ?? scope;
  if (typeof named === 'string') {
    if (runNamePattern.test(named)) return named;
    throw badRequest(
      'x-run-name or /run/NAME is no run name: letters, digits, dot, underscore and hyphen, 96 at most.',
    );
  }
  const key = token === null ? bearerToken(request.headers) : null;
  return key === null ? 'unnamed' : `key-${createHash('sha256').update(key).digest('hex').slice(0, 8)}`;
}
