/**
 * The gateway: an OpenAI-compatible server in front of equal judges. It queues what they cannot take, switches to the others when one fails, caches
 * replies, and reports metrics. Request bodies are passed on byte by byte.
 */
import { ConfigError, EditrlError } from '../../core/errors.js';
import { tooFewFiles } from '../../core/open_files.js';
import { requireToken } from '../../http/guard.js';
import { checkedKey } from '../../http/key.js';
import type { Clock } from '../../core/clock.js';
import { systemClock } from '../../core/clock.js';
import { resolveEndpoints } from '../judge/endpoints.js';
import { createHttpPool } from '../../http/pool.js';
import { checkJudge, type JudgeNames, type JudgeCheck, type JudgeCheckContext } from '../judge/readiness.js';
import { CanaryScoring, acquireSlot, type ChooseCanaries } from './canary_scoring.js';
import { genericCanaries } from './canary_set.js';
import { ReplyCache } from './cache.js';
import { Dispatcher } from './dispatcher.js';
import { HttpServer } from '../../http/server.js';
import type { OnDiskError } from '../../core/lines_file.js';
import { GatewayMetrics } from './metrics.js';
import { gatewayOptionsSchema, type GatewayOptions, type GatewayOptionsInput } from './options.js';
import { ExchangeRecords } from './records.js';
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
  /** Null scores no canaries. */
  readonly canaries?: ChooseCanaries | null;
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

/** Starts the gateway; it listens when the promise resolves, while its upstreams may still be starting. Raises ConfigError for options that cannot work, EndpointError where it cannot listen, RunError where a file cannot be opened. */
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
  const onLost = (file: string): OnDiskError => reportLostLines(file, { metrics, clock, log });
  const { cache, records } = await openFiles(options, onLost, log);
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
  const scoring = new CanaryScoring({
    ...shared,
    choose: services.canaries === undefined ? () => genericCanaries() : (services.canaries ?? (() => null)),
    model: options.model,
    tolerance: options.canaryTolerance,
    stop: stop.signal,
    log,
  });
  let firstReady = (): void => undefined;
  const ready = new Promise<void>((resolve) => (firstReady = resolve));
  for (const upstream of upstreams) {
    watches.push(
      new UpstreamWatch(upstream, {
        clock,
        stop: stop.signal,
        canaryEveryMs: options.canaryEveryMin * 60_000,
        look: async () => {
          const end = await acquireSlot(upstream, dispatcher, stop.signal);
          try {
            const look = await lookForModel(upstream.url, options.model, {
              alias: options.modelAlias,
              names: flags,
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
        score: (_, look) => scoring.score(upstream, look.models, look.found?.traits),
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
    cache,
    records,
    upstreams,
    looks: found,
    findings: scoring.findings,
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
    await records?.close();
    await cache?.close();
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

/** How often the same disk error for the same file is reported again. */
const sayLostEveryMs = 30_000;

/** Reports what a file loses: at once, and then at intervals how much has been lost since. */
function reportLostLines(
  file: string,
  { metrics, clock, log }: { metrics: GatewayMetrics; clock: Clock; log: NonNullable<GatewayServices['log']> },
): OnDiskError {
  let said = '';
  let saidAt = -Infinity;
  let lost = 0;
  return (error, lines) => {
    if (lines > 0) metrics.lostLines.add({ file }, lines);
    lost += lines;
    if (error.message === said && clock.now() - saidAt < sayLostEveryMs) return;
    // The advice for a run's disk does not apply here.
    const isDisks = error instanceof EditrlError && error.cause !== undefined;
    const text = isDisks
      ? `${error.where ?? file}: ${error.message}. The gateway goes on, and writes again as soon as the disk takes it.`
      : error instanceof EditrlError
        ? error.toText()
        : error.message;
    log('warn', `ALARM ${lost === 0 ? '' : `${lost} lines are lost: `}${text}`);
    said = error.message;
    saidAt = clock.now();
    lost = 0;
  };
}

interface GatewayFiles {
  readonly cache: ReplyCache | null;
  readonly records: ExchangeRecords | null;
}

/** Raises ConfigError where another gateway has one of them, RunError where the disk refuses. */
async function openFiles(
  options: GatewayOptions,
  onError: (file: string) => OnDiskError,
  log: (level: 'info' | 'warn', text: string) => void,
): Promise<GatewayFiles> {
  const { cacheDir: dir, recordsFile: path } = options;
  const kept = { maxEntries: options.cacheEntries, maxBytes: options.cacheMb * 1e6 };
  const cache = dir === null ? null : await ReplyCache.open({ dir, ...kept, onError: onError('cache') });
  if (cache !== null && cache.found !== null) log('warn', cache.found);
  const rotateBytes = options.recordsMb * 1e6;
  try {
    const records =
      path === null ? null : await ExchangeRecords.open({ path, rotateBytes, onError: onError('records') });
    return { cache, records };
  } catch (error) {
    await cache?.close();
    throw error;
  }
}
