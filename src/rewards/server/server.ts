/**
 * The reward server: offers heavy rewards (text recognition, CLIP) and access to a judge over HTTP, so that they run outside the trainer.
 * `POST /v1/score`, `POST /score`, `GET /health`, `GET /metrics`. Nothing in a request opens a file or an address.
 */
import { once } from 'node:events';
import type { ServerResponse } from 'node:http';
import { type Clock, systemClock } from '../../core/clock.js';
import { Semaphore } from '../../core/semaphore.js';
import { badRequest, Refusal } from '../../core/http/refusal.js';
import { json, metricsPage, type Reply } from '../../core/http/body.js';
import { HttpServer, type Call } from '../../core/http/server.js';
import type { CanaryResult } from '../judge/client.js';
import { LINES, parseItem, parseLine, requireType } from './request.js';
import { ItemScorer, type ServedReward } from './scorer.js';
import { REWARD_HEADER, type HealthReply, type ReplyItem } from './wire.js';
import type { CombinedOutcome } from '../score/combined.js';
import { Counts, family, head, Histogram, type Sample } from '../../core/http/prometheus.js';
import { type ServerLimits, defaultLimits } from './scorer.js';

export interface RewardServerOptions {
  readonly host: string;
  /** 0 takes a free port. */
  readonly port: number;
  /** Null only if no one but the programs of this machine can connect. */
  readonly token: string | null;
  readonly reward: ServedReward;
  readonly limits?: Partial<ServerLimits>;
  readonly clock?: Clock;
  /** Called with unexpected errors of a term or of the server itself. */
  readonly onDefect?: (error: unknown) => void;
}

export interface RunningRewardServer {
  readonly url: string;
  readonly port: number;
  /** Accepts nothing more, waits for requests in flight (at most `drainTimeoutMs`), then drops the rest. */
  close(): Promise<void>;
}

/** Raises ConfigError for an address that needs a token but has none, EndpointError for one that is taken or not on this machine. */
export async function startRewardServer(options: RewardServerOptions): Promise<RunningRewardServer> {
  const limits = { ...defaultLimits, ...options.limits };
  const clock = options.clock ?? systemClock;
  const onDefect = options.onDefect ?? (() => undefined);
  const service = new Service(options.reward, limits, clock, onDefect);
  const server = new HttpServer({
    name: 'the reward server',
    host: options.host,
    token: options.token,
    routes: {
      '/v1/score': { POST: (call) => service.stream(call) },
      '/score': { POST: (call) => service.score(call) },
      '/health': { open: true, GET: (call) => service.health(call) },
      '/metrics': { GET: (call) => service.showMetrics(call) },
    },
    limits,
    clock,
    onDefect,
  });
  const url = await server.listen(options.port);
  return { url, port: Number(new URL(url).port), close: () => server.drain() };
}

/** Seconds until a client may send an item again that the judge left unscored. */
const RETRY_UNSCORED_S = 5;

/**
 * A client that sends one item reads numbers, and a null in their place would count as a score of 0. Raises Refusal if the item has no
 * score: 400 if its content is at fault, else 503.
 */
function refuseUnscored({ outcome, terms, vlm_score: vlm, ocr_confidence: ocr }: ReplyItem): void {
  if (outcome.kind !== 'unscored' && vlm !== null && ocr !== null) return;
  const [name, failed] = Object.entries(terms).find(([, { kind }]) => kind === 'unscored') ?? ['the reward', outcome];
  const { reason, detail } = failed;
  const message = `${name} gave no score (${reason}): ${detail}`;
  if (reason === 'bad_request') throw badRequest(message);
  throw new Refusal('unavailable', message, { retryAfterS: RETRY_UNSCORED_S });
}

class Service {
  readonly #metrics = new ServerMetrics();
  readonly #scorer: ItemScorer;
  readonly #parsing: Semaphore;
  #pendingCanary: Promise<CanaryResult> | null = null;
  #inFlight = 0;

  constructor(
    private readonly reward: ServedReward,
    private readonly limits: ServerLimits,
    clock: Clock,
    onDefect: (error: unknown) => void,
  ) {
    this.#scorer = new ItemScorer(reward, limits, clock, {
      onItem: (scored, seconds) => this.#metrics.countItem(scored, seconds),
      onDefect,
    });
    // Parses one large body at a time, but many small ones: a body takes several times its bytes while it is parsed.
    this.#parsing = new Semaphore(limits.bodyBytes);
  }

  async score(call: Call): Promise<Reply> {
    this.#refuseTooMany();
    const bytes = await call.read();
    const type = call.request.headers['content-type'];
    const item = await this.#parsing.run(async () => parseItem(type, bytes), bytes.length);
    // A client that never sends its body takes no slot.
    this.#refuseTooMany();
    return this.#counted(async () => {
      const { reply } = await this.#scorer.start(item, call.gone);
      const scored = await reply;
      refuseUnscored(scored);
      return json(200, { reward: this.reward.digest, ...scored });
    });
  }

  /** Replies in the order in which items are done. A refusal after the first line ends the stream as a line of its own. */
  async stream(call: Call): Promise<null> {
    this.#refuseTooMany();
    requireType(call.request.headers['content-type'], LINES);
    const { response, server } = call;
    response.writeHead(200, { 'content-type': LINES, [REWARD_HEADER]: this.reward.digest }).flushHeaders();
    server.replies.add({ path: '/v1/score', status: '200' });
    await this.#counted(async () => {
      const pending = new Set<Promise<void>>();
      let end = '';
      try {
        await this.#scoreLines(call, pending);
      } catch (error) {
        if (!(error instanceof Refusal)) throw error;
        end = `${JSON.stringify(error.body())}\n`;
      }
      await Promise.all(pending);
      response.end(end);
      if (end === '') return;
      // The rest of the body is dropped, so that its sender gets to read the line. After a whole body, the connection is used again.
      const { request } = call;
      request.resume();
      setTimeout(() => {
        if (!request.complete) request.socket.destroy();
      }, LINGER_MS).unref();
    });
    return null;
  }

  /** Reads a line when the item before it has room and the client has read its replies. `pending`: replies to come. */
  async #scoreLines({ lines, response, gone }: Call, pending: Set<Promise<void>>): Promise<void> {
    const write = (reply: ReplyItem): void => void response.write(`${JSON.stringify(reply)}\n`);
    for await (const { bytes, release } of lines()) {
      const { reply } = await this.#start(bytes, gone).catch((error: unknown) => {
        release();
        throw error;
      });
      const done = reply.then(write).finally(() => {
        release();
        pending.delete(done);
      });
      pending.add(done);
      if (response.writableNeedDrain) await drained(response, gone, this.limits.requestTimeoutMs);
    }
  }

  /** Resolves when the line's item has room, with its pending reply. Raises Refusal for a line that nothing can answer. */
  async #start(bytes: Buffer, gone: AbortSignal): Promise<{ readonly reply: Promise<ReplyItem> }> {
    const { key, item } = await this.#parsing.run(async () => parseLine(bytes), bytes.length);
    if (!(item instanceof Refusal)) return this.#scorer.start(item, gone);
    return { reply: Promise.resolve(this.#scorer.refuse(key, item.message)) };
  }

  /** The request counts as in flight until it is done. */
  async #counted<T>(work: () => Promise<T>): Promise<T> {
    this.#inFlight++;
    try {
      return await work();
    } finally {
      this.#inFlight--;
    }
  }

  #refuseTooMany(): void {
    if (this.#inFlight < this.limits.requests) return;
    throw new Refusal('busy', `${this.#inFlight} requests are in flight, the highest number allowed.`, {
      retryAfterS: 1,
    });
  }

  /** With `?judge`, the reply for a client with the token includes whether the judge behind the terms answers, tested with a small question. */
  async health({ server, trusted, query }: Call): Promise<Reply> {
    if (server.draining) return json(503, { status: 'draining' } satisfies HealthReply);
    if (!trusted) return json(200, { status: 'ok' } satisfies HealthReply);
    const { digest, terms } = this.reward;
    const settings = { reward: digest, terms: terms.map(({ name, weight }) => ({ name, weight })) };
    const found = query.has('judge') ? await this.#askJudge() : null;
    if (found === null || found.ok) return json(200, { status: 'ok', ...settings } satisfies HealthReply);
    return json(503, { status: 'judge_away', detail: found.detail, ...settings } satisfies HealthReply);
  }

  /** Concurrent callers share one question. */
  #askJudge(): Promise<CanaryResult> | null {
    const { canary } = this.reward;
    if (canary === undefined) return null;
    return (this.#pendingCanary ??= canary(AbortSignal.timeout(this.limits.judgeTimeoutMs)).finally(() => {
      this.#pendingCanary = null;
    }));
  }

  showMetrics({ server }: Call): Reply {
    return metricsPage(
      this.#metrics.toText({
        replies: server.replies.samples(),
        requestsInFlight: this.#inFlight,
        heldBytes: server.held.held,
      }),
    );
  }
}

/** Raises Refusal if the client reads none of its replies for so long, or disconnects. */
async function drained(response: ServerResponse, gone: AbortSignal, withinMs: number): Promise<void> {
  const signal = AbortSignal.any([gone, AbortSignal.timeout(withinMs)]);
  await once(response, 'drain', { signal }).catch(() => {
    throw new Refusal('caller_gone', 'The client does not read its replies.');
  });
}

/** Milliseconds that a connection stays open after a stream has ended early. */
const LINGER_MS = 2_000;

/** Upper bounds in seconds: a local term takes milliseconds, a judge up to minutes. */
const bounds = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300] as const;

/** Values at the moment of the request. */
export interface CurrentLoad {
  /** Replies so far by path and status. */
  readonly replies: readonly Sample[];
  readonly requestsInFlight: number;
  readonly heldBytes: number;
}

export class ServerMetrics {
  readonly #items = new Counts();
  readonly #terms = new Counts();
  readonly #seconds = new Histogram(bounds);

  countItem({ outcome, terms }: CombinedOutcome, seconds: number): void {
    this.#items.add({ kind: outcome.kind });
    for (const { name, outcome: of } of terms) {
      this.#terms.add({ term: name, kind: of.kind, reason: of.kind === 'scored' ? '' : of.reason });
    }
    this.#seconds.observe(seconds);
  }

  /** In Prometheus' text format. */
  toText({ replies, requestsInFlight, heldBytes }: CurrentLoad): string {
    const { user, system } = process.cpuUsage();
    const gauge = (name: string, help: string, value: number) => family(name, 'gauge', help, [{ value }]);
    const lines = [
      family('editrl_reward_requests_total', 'counter', 'Requests by path and HTTP status.', replies),
      family('editrl_reward_items_total', 'counter', 'Items by outcome.', this.#items.samples()),
      family('editrl_reward_term_outcomes_total', 'counter', 'Outcomes of each term.', this.#terms.samples()),
      head('editrl_reward_item_seconds', 'histogram', 'Seconds that one item took.'),
      this.#seconds.lines('editrl_reward_item_seconds', {}),
      gauge('editrl_reward_requests_under_way', 'Requests to /score in flight.', requestsInFlight),
      gauge('editrl_reward_held_bytes', 'Bytes of request bodies in memory.', heldBytes),
      gauge('process_resident_memory_bytes', 'Resident memory.', process.memoryUsage.rss()),
      family('process_cpu_seconds_total', 'counter', 'Processor time, user and system.', [
        { value: (user + system) / 1e6 },
      ]),
    ];
    return `${lines.flat().join('\n')}\n`;
  }
}
