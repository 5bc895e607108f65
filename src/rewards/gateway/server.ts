/**
 * The gateway: an OpenAI-compatible server in front of equal judges. It queues requests that they cannot take, asks another judge when one
 * fails, and reports metrics. Request bodies are forwarded unchanged.
 */
import { createHash } from 'node:crypto';
import { type Clock, Deadline, allowManyListeners, systemClock } from '../../core/clock.js';
import { ConfigError } from '../../core/errors.js';
import { json, metricsPage, type Reply } from '../../core/http/body.js';
import { bearerToken, requireToken } from '../../core/http/guard.js';
import { checkedKey } from '../../core/http/key.js';
import { createHttpPool, type HttpPool } from '../../core/http/pool.js';
import { badRequest, Refusal } from '../../core/http/refusal.js';
import { HttpServer, type Call, type Route } from '../../core/http/server.js';
import { sha256 } from '../../core/images/image.js';
import { tooFewFiles } from '../../core/process.js';
import { attemptResult } from '../../core/remote/remote.js';
import { Semaphore } from '../../core/semaphore.js';
import { leavableFields } from '../judge/dialect.js';
import { resolveEndpoints } from '../judge/endpoints.js';
import { checkJudge, type JudgeNames, type JudgeCheck } from '../judge/readiness.js';
import { callerGone, errorKindOf, exchange, meaningOf, readChatModel, type Exchange } from './chat.js';
import { Dispatcher, type Lease, type Turn } from './dispatcher.js';
import { GatewayMetrics } from './metrics.js';
import { type GatewayOptions, runNamePattern } from './options.js';
import { Upstream } from './upstream.js';

/** Secrets are here and not among the options, so that options can be shown. */
export interface GatewayServices {
  /** The token that callers must send. Null admits everyone, which is allowed only on a loopback address. */
  readonly token?: string | null;
  /** The key that the upstreams require. */
  readonly upstreamKey?: string | null;
  readonly log?: (level: 'info' | 'warn', text: string) => void;
  readonly clock?: Clock;
}

/** Starts the gateway. Its upstreams may still be starting. Raises ConfigError for unusable options, EndpointError if it cannot listen. */
export async function startGateway(options: GatewayOptions, services: GatewayServices = {}): Promise<Gateway> {
  const gateway = new Gateway(options, services);
  await gateway.listen();
  return gateway;
}

const CHECK_NAMES: JudgeNames = {
  judge: 'the judge',
  endpoint: '--upstream',
  model: '--model',
  allow: (name) => `add --model-alias${name === null ? '' : ` ${name}`}`,
  key: 'the variable of --upstream-key-env',
  start: 'Start it, or check host and port.',
};

const RETRY_AFTER_S = { queue_full: 2, no_upstream: 5, stopping: 5 } as const;

/** Error codes that report a missing reply to the caller. */
const NO_REPLY = {
  timeout: 'upstream_late',
  given_up: 'caller_gone',
  connection: 'upstream_failed',
  bad_reply: 'upstream_failed',
  refused_key: 'upstream_failed',
} as const;

/** A model as `/v1/models` lists it. */
interface ModelEntry {
  readonly id: string;
}

export class Gateway {
  /** Base URL, `/v1` included. */
  url = '';
  /** Resolves when the first upstream is ready. */
  readonly ready: Promise<void>;
  readonly #options: GatewayOptions;
  readonly #token: string | null;
  readonly #upstreamKey: string | null;
  readonly #clock: Clock;
  readonly #log: NonNullable<GatewayServices['log']>;
  readonly #pool: HttpPool;
  readonly #upstreams: readonly Upstream[];
  readonly #dispatcher: Dispatcher;
  readonly #metrics = new GatewayMetrics();
  /** One large body is parsed at a time, many small ones together: a parsed body takes several times its bytes. */
  readonly #parsing: Semaphore;
  readonly #server: HttpServer;
  readonly #stop = new AbortController();
  #watching: readonly Promise<void>[] = [];
  #closing: Promise<void> | null = null;

  constructor(options: GatewayOptions, services: GatewayServices) {
    const { token = null, clock = systemClock, log = () => undefined } = services;
    requireToken(options.host, token);
    this.#options = options;
    this.#token = token;
    this.#clock = clock;
    this.#log = log;
    this.#upstreamKey = checkedKey(services.upstreamKey ?? undefined, "the upstreams' key") ?? null;
    const urls = upstreamUrls(options);
    // A request takes a connection from its client and one to an upstream, in addition to the gateway's own files.
    const warning = tooFewFiles('the gateway', 2 * options.maxConcurrency + 128);
    if (warning !== null) log('warn', warning);
    // Room for the cap and one check of each upstream.
    this.#pool = createHttpPool({ connections: options.maxConcurrency + 1, secret: this.#upstreamKey });
    let firstReady = (): void => undefined;
    this.ready = new Promise((resolve) => (firstReady = resolve));
    const upstreamServices = {
      clock,
      cap: options.maxConcurrency,
      breakerFailures: options.breakerFailures,
      check: (upstream: Upstream) => this.#check(upstream),
      onChange: (upstream: Upstream) => {
        this.#dispatcher.upstreamsChanged();
        if (upstream.ready) firstReady();
      },
      log,
    };
    this.#upstreams = urls.map((url) => new Upstream(url, upstreamServices));
    this.#dispatcher = new Dispatcher(clock, this.#upstreams, options);
    this.#parsing = new Semaphore(options.maxBodyMb * 1e6);
    this.#server = new HttpServer({
      name: 'the gateway',
      host: options.host,
      token,
      routes: this.#routes(),
      prefix: '/run/',
      limits: {
        bodyBytes: options.maxBodyMb * 1e6,
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
  }

  async listen(): Promise<void> {
    try {
      this.url = `${await this.#server.listen(this.#options.port)}/v1`;
    } catch (error) {
      await this.#pool.close();
      throw error;
    }
    // Every watch and every check listens to it, which is not a leak.
    allowManyListeners(this.#stop.signal);
    this.#watching = this.#upstreams.map((upstream) => upstream.watch(this.#stop.signal));
  }

  /** Rejects further requests with 503, waits for those in flight until the time is over, then closes. */
  async drain(): Promise<void> {
    this.#dispatcher.stop();
    this.#log('info', `Draining: waiting for ${this.#server.inFlight} requests, rejecting new ones`);
    await this.#server.drain();
    await this.close();
  }

  /** Closes at once. */
  close(): Promise<void> {
    return (this.#closing ??= this.#close());
  }

  async #close(): Promise<void> {
    this.#dispatcher.stop();
    this.#stop.abort();
    await this.#server.close();
    await Promise.all(this.#watching);
    await this.#pool.close();
  }

  #routes(): Readonly<Record<string, Route>> {
    return {
      '/health': { open: true, GET: (call) => this.#health(call) },
      '/metrics': {
        GET: () => metricsPage(this.#metrics.render(this.#upstreams, this.#dispatcher, this.#server.replies.samples())),
      },
      '/v1/models': { GET: () => json(200, { object: 'list', data: this.#models() }) },
      '/v1/models/': { GET: ({ rest }) => json(200, this.#model(rest)) },
      '/v1/chat/completions': { POST: (call) => this.#chat(call) },
    };
  }

  /** 200 if at least one upstream is ready, else 503. Only trusted callers get details. */
  #health({ trusted, server: { draining } }: Call): Reply {
    const ready = this.#upstreams.some((upstream) => upstream.ready) && !draining;
    const status = draining ? 'draining' : ready ? 'ready' : 'waiting';
    if (!trusted) return json(ready ? 200 : 503, { status });
    return json(ready ? 200 : 503, {
      status,
      why: draining ? 'it is stopping' : ready ? null : this.#notReady().message,
      upstreams: this.#upstreams.map(({ url, state, found, models, limit }) => ({
        url,
        state,
        found: found === '' ? null : found,
        models: models.map(({ id }) => id),
        in_flight: limit.inFlight,
        limit: limit.limit,
        cap: limit.cap,
      })),
      waiting: this.#dispatcher.waiting,
      runs: Object.fromEntries(this.#dispatcher.runs()),
    });
  }

  /** The models of all ready upstreams. If none can become ready, lists theirs instead, so that a caller sees them. */
  #models(): readonly ModelEntry[] {
    const ready = this.#upstreams.filter((upstream) => upstream.ready);
    if (ready.length === 0 && !this.#upstreams.every(({ isWrong }) => isWrong)) throw this.#notReady();
    const listed = (ready.length > 0 ? ready : this.#upstreams).flatMap(({ models }) => models);
    if (listed.length === 0) throw new Refusal('no_such_model_anywhere', this.#notReady().message);
    return [...new Set(listed.map(({ id }) => id))].map((id) => {
      const same = listed.filter((model) => model.id === id);
      const lengths = same.flatMap(({ maxModelLen }) => maxModelLen ?? []);
      return {
        id,
        object: 'model',
        created: 0,
        owned_by: 'editrl-gateway',
        root: same.find(({ root }) => root !== null)?.root ?? id,
        // A request must fit every judge.
        ...(lengths.length === 0 ? {} : { max_model_len: Math.min(...lengths) }),
      };
    });
  }

  #model(name: string): ModelEntry {
    const listed = this.#models();
    const found = listed.find(({ id }) => id === name);
    if (found !== undefined) return found;
    throw noSuchModel(name, listed);
  }

  async #chat(call: Call): Promise<Reply> {
    const { gone } = call;
    const run = this.#runOf(call);
    // A page in a browser can post other content types to a loopback address without a preflight request.
    if (!/^application\/json\b/i.test(call.request.headers['content-type'] ?? '')) {
      throw new Refusal('unsupported_media_type', 'The body has to be JSON: content-type application/json.');
    }
    const bytes = await call.read();
    const { maxImages, maxImageMegapixels } = this.#options;
    const reading = { maxImages, maxImagePixels: maxImageMegapixels * 1e6, caller: gone };
    const model = await this.#parsing.run(() => readChatModel(bytes, reading), bytes.length);
    const { url, found } = await this.#ask({ run, model, bytes, gone });
    if (found.kind === 'failed') {
      throw new Refusal(NO_REPLY[found.reason], `The judge at ${url} gave no reply: ${found.detail}.`);
    }
    const { status, body, headers } = found;
    const type = headers['content-type'] ?? 'application/json';
    return { status, type, body, headers: { ...headers, 'x-editrl-upstream': url } };
  }

  /** The run whose quota a request counts against: the one it names, else one for its key, else one for everyone else. */
  #runOf({ request, scope }: Call): string {
    const named = request.headers['x-run-name'] ?? scope;
    if (typeof named === 'string') {
      if (runNamePattern.test(named)) return named;
      throw badRequest(
        'x-run-name or /run/NAME is not a run name: letters, digits, dot, underscore and hyphen, 96 at most.',
      );
    }
    const key = this.#token === null ? bearerToken(request.headers) : null;
    return key === null ? 'unnamed' : `key-${createHash('sha256').update(key).digest('hex').slice(0, 8)}`;
  }

  /**
   * Asks one upstream after another, each at most once, until a reply is final. A request that may be at fault itself is sent to two of them.
   * Chat requests have no side effects, so they may be repeated.
   */
  async #ask(request: {
    readonly run: string;
    readonly model: string;
    readonly bytes: Buffer;
    readonly gone: AbortSignal;
  }): Promise<{ readonly url: string; readonly found: Exchange }> {
    const { run, model, bytes, gone } = request;
    const tried = new Set<Upstream>();
    let last: { readonly url: string; readonly found: Exchange } | null = null;
    for (let doubts = 0; ;) {
      const turn = await this.#dispatcher.acquire({
        run,
        allowed: (upstream) => upstream.serves(model) && !tried.has(upstream),
        signal: gone,
        again: last !== null,
      });
      if (turn.kind !== 'lease') {
        if (last !== null && turn.kind !== 'given_up') return last;
        throw this.#refusal(turn.kind, model);
      }
      const { upstream } = turn.lease;
      const found = await this.#send(turn.lease, bytes, gone);
      last = { url: upstream.url, found };
      const error = errorKindOf(found);
      if (error !== null) this.#metrics.errors.add({ upstream: upstream.url, kind: error });
      const meaning = meaningOf(found);
      if (attemptResult(meaning, found).next === 'done' || (meaning === 'doubtful' && ++doubts > 1)) return last;
      tried.add(upstream);
      this.#metrics.failOvers.add({ upstream: upstream.url });
    }
  }

  async #send({ upstream, waitedMs, end }: Lease, body: Buffer, caller: AbortSignal): Promise<Exchange> {
    this.#metrics.waited.observe(waitedMs / 1000);
    const deadline = new Deadline(this.#clock, this.#options.timeoutS * 1000, caller);
    const started = this.#clock.now();
    const { url } = upstream;
    const key = this.#upstreamKey;
    const found = await exchange({ url, body, key, pool: this.#pool, caller, deadline: deadline.signal });
    deadline.dispose();
    const { ending } = attemptResult(meaningOf(found), found);
    const detail = found.kind === 'failed' ? found.detail : `HTTP ${found.status}`;
    // Hashed only if it matters.
    end(ending.health === 'works' ? ending : { ...ending, request: sha256(body), found: detail });
    this.#metrics.observeLatency(url, (this.#clock.now() - started) / 1000);
    if (found.kind === 'reply' && found.tokens !== null) {
      this.#metrics.tokens.add({ direction: 'prompt' }, found.tokens.prompt);
      this.#metrics.tokens.add({ direction: 'completion' }, found.tokens.completion);
    }
    return found;
  }

  #refusal(kind: Exclude<Turn['kind'], 'lease'>, model: string): Refusal {
    if (kind === 'given_up') return callerGone();
    if (kind === 'queue_full') {
      return new Refusal('busy', 'Too many requests are waiting.', { retryAfterS: RETRY_AFTER_S.queue_full });
    }
    if (kind === 'stopping') {
      return new Refusal('unavailable', 'The gateway is stopping.', { retryAfterS: RETRY_AFTER_S.stopping });
    }
    const ready = this.#upstreams.filter((upstream) => upstream.ready);
    return ready.length === 0
      ? this.#notReady()
      : noSuchModel(
          model,
          ready.flatMap(({ models }) => models),
        );
  }

  /** Says for every upstream why it is not ready. */
  #notReady(): Refusal {
    const why = this.#upstreams.map(({ url, found }) => `${url}: ${found}`).join('; ');
    return new Refusal('unavailable', `No judge is ready. ${why}`, { retryAfterS: RETRY_AFTER_S.no_upstream });
  }

  /** Checks an upstream for the configured model, or for the first model that it lists. A ready upstream lists the model. */
  async #check(upstream: Upstream): Promise<JudgeCheck> {
    const { url } = upstream;
    const end = await this.#dispatcher.acquireForCheck(upstream, this.#stop.signal);
    const context = {
      alias: this.#options.modelAlias,
      names: CHECK_NAMES,
      // A run leaves out fields that its judges reject. The check needs none of them.
      leaveOut: leavableFields,
      clock: this.#clock,
      pool: this.#pool,
      signal: this.#stop.signal,
      timeoutMs: this.#options.timeoutS * 1000,
      ...(this.#upstreamKey === null ? {} : { apiKey: this.#upstreamKey }),
    };
    const { model } = this.#options;
    try {
      if (model === null) {
        const listing = await checkJudge(url, '', context);
        const first = listing.models?.at(0);
        // No one configured a model, so callers decide whether its name is right.
        return first === undefined ? listing : await checkJudge(url, first.id, { ...context, alias: true });
      }
      const check = await checkJudge(url, model, context);
      if (check.state !== 'ready' || check.models.some(({ id }) => id === model)) return check;
      return { ...check, models: [{ id: model, root: null, maxModelLen: null }, ...check.models] };
    } finally {
      end?.({ load: 'nothing', health: 'nothing' });
    }
  }
}

function noSuchModel(name: string, known: readonly ModelEntry[]): Refusal {
  const names = [...new Set(known.map(({ id }) => id))].join(', ');
  return new Refusal('not_found', `The model \`${name.slice(0, 200)}\` does not exist; known: ${names}.`, {
    param: 'model',
  });
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
