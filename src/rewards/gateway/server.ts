/**
 * The gateway: an OpenAI-compatible server in front of equal judges. It queues requests that they cannot take, switches to the others when one fails,
 * and reports metrics. Request bodies are passed on byte by byte.
 */
import { ConfigError } from '../../core/errors.js';
import { tooFewFiles } from '../../core/open_files.js';
import { requireToken } from '../../http/guard.js';
import { checkedKey } from '../../http/key.js';
import type { Clock } from '../../core/clock.js';
import { systemClock } from '../../core/clock.js';
import { leavableFields } from '../judge/dialect.js';
import { resolveEndpoints } from '../judge/endpoints.js';
import { createHttpPool } from '../../http/pool.js';
import { checkJudge, type JudgeNames, type JudgeCheck, type JudgeCheckContext } from '../judge/readiness.js';
import { Dispatcher } from './dispatcher.js';
import { HttpServer } from '../../http/server.js';
import { GatewayMetrics } from './metrics.js';
import { gatewayOptionsSchema, type GatewayOptions, type GatewayOptionsInput } from './options.js';
import { gatewayRoutes, type GatewayState } from './routes.js';
import { Upstream } from './upstream.js';
import { UpstreamWatch } from './watch.js';
import { allowManyListeners } from '../../core/listeners.js';

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
      log('info', `draining: ${server.underWay} requests are under way, further ones are refused`);
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
