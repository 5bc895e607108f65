/**
 * The rule judge behind the protocol of a VLM server: a client can tell it from vLLM only by what `/v1/models` lists. It judges by rules and is not a
 * VLM: it reads scenes and signs of the tiny world, and finds everything else unreadable.
 */
import { randomUUID } from 'node:crypto';
import type { Server, ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { sleep, systemClock } from '../../core/clock.js';
import { Refusal } from '../../core/http/refusal.js';
import { json, type Reply } from '../../core/http/body.js';
import { HttpServer, type Call, type HttpLimits, type Route } from '../../core/http/server.js';
import { JUDGE_MODEL } from '../judge/endpoints.js';
import { DEFAULT_GEOMETRY, type Geometry } from '../../data/tiny/world.js';
import {
  digestAnswer,
  writeAnswer,
  type Answer,
  digitReply,
  type Effect,
  type FaultSource,
  completion,
  parseRequest,
  readQuestion,
  type ChatReply,
  type Question,
} from './protocol.js';
import type { Biases } from './biases.js';
import { look, lookBiased, NOT_READ, openSight } from './look.js';

export { JUDGE_MODEL };

export interface JudgeOptions {
  /** 0 takes a free port. */
  readonly port: number;
  readonly host: string;
  /** The token that callers have to send; null (the default) lets every program in, which is allowed only on a loopback address. */
  readonly token?: string | null;
  /** The grid that scenes are read on; images of another size are resampled to its size. */
  readonly geometry?: Geometry;
  /** Other model names that it answers to. */
  readonly models?: readonly string[];
  /** `rule` looks at the pictures; `digest` derives meaningless scores from the bytes that were sent, see `digestAnswer`. */
  readonly scores?: 'rule' | 'digest';
  /** Minimum time from a chat's arrival to its answer. */
  readonly latencyMs?: number;
  /** Further chats at once are refused with status 429. */
  readonly maxConcurrency?: number;
  /** By default none. */
  readonly faults?: FaultSource;
  /** How it is wrong about pictures; by default it is not. */
  readonly biases?: Biases;
}

export interface RunningJudge {
  /** The base URL of the API, `/v1` included. */
  readonly url: string;
  stats(): JudgeStats;
  /** Stops listening and drops open connections. */
  close(): Promise<void>;
}

/** Two images of any sensible size fit into a body; `MOST_PIXELS` limits how many pixels its bytes can decode to. */
const LIMITS: HttpLimits = {
  bodyBytes: 64e6,
  heldBytes: 256e6,
  connections: 4096,
  headersTimeoutMs: 30_000,
  requestTimeoutMs: 120_000,
  bodyWindowMs: 20_000,
  timeoutCheckMs: 1_000,
  drainTimeoutMs: 0,
};
/** A rough length that vLLM would list as its context. */
const MAX_MODEL_LEN = 8192;
/** What a judge says that comes to no score. */
const UNDECIDED: ChatReply = { content: 'I cannot compare these pictures.', finishReason: 'stop' };

interface Service {
  readonly models: readonly string[];
  /** Null where the judge comes to no score. */
  readonly answer: (question: Question) => Promise<Answer | null>;
  readonly latencyMs: number;
  readonly faults: FaultSource | null;
  readonly load: Load;
  /** Stops accepting connections for this long. */
  readonly die: (milliseconds: number) => void;
}

/** What `/v1/models` lists. */
function listing({ models, faults, load }: Service) {
  const listed = faults?.hidesModel(load.countListing()) === true ? ['another-model'] : models;
  return listed.map((id) => ({
    id,
    object: 'model',
    created: 0,
    owned_by: 'editrl',
    root: JUDGE_MODEL,
    parent: null,
    max_model_len: MAX_MODEL_LEN,
  }));
}

const noSuchModel = (name: string): Refusal =>
  new Refusal('not_found', `The model \`${name}\` does not exist.`, { param: 'model' });

function routesOf(service: Service): Readonly<Record<string, Route>> {
  return {
    '/health': { open: true, GET: () => ({ status: 200, type: 'application/json', body: '' }) },
    '/stats': { GET: () => json(200, service.load.stats()) },
    '/v1/models': { GET: () => json(200, { object: 'list', data: listing(service) }) },
    '/v1/models/': {
      GET: ({ rest }) => {
        const found = listing(service).find(({ id }) => id === rest);
        if (found === undefined) throw noSuchModel(rest);
        return json(200, found);
      },
    },
    '/v1/chat/completions': { POST: (call) => serveChat(call, service) },
  };
}

/** Null if a fault is the answer, or if nobody waits for one any more. */
async function serveChat({ request, response, gone, read }: Call, service: Service): Promise<Reply | null> {
  const came = performance.now();
  const { number, refused } = service.load.begin(response);
  const body = await read();
  if (refused) throw new Refusal('busy', 'Too many requests at once.', { retryAfterS: 1 });
  const fault = service.faults?.at(number) ?? null;
  if (fault !== null) service.load.countFault(fault.name);
  const effect: Effect = fault?.effect ?? { does: 'delay', milliseconds: 0 };
  switch (effect.does) {
    case 'hang':
      return null;
    case 'reset':
      request.socket.resetAndDestroy();
      return null;
    case 'stall':
      response.writeHead(200, { 'content-type': 'application/json' }).write('{"choices": [');
      return null;
    case 'die':
      service.die(effect.milliseconds);
      return null;
    case 'reply':
      response.writeHead(effect.status, effect.headers).end(effect.body);
      return null;
    case 'delay':
    case 'garble': {
      const chat = parseRequest(body);
      if (!service.models.includes(chat.model)) throw noSuchModel(chat.model);
      const question = await readQuestion(chat);
      const answer = await service.answer(question);
      const reply = answer === null ? UNDECIDED : replyTo(question, answer, effect);
      const more = effect.does === 'delay' ? effect.milliseconds : 0;
      const left = came + service.latencyMs + more - performance.now();
      if (left > 0) await sleep(systemClock, left, gone);
      const created = Math.floor(Date.now() / 1000);
      const id = `chatcmpl-${randomUUID().replaceAll('-', '')}`;
      return gone.aborted ? null : json(200, completion(id, chat.model, created, question, reply));
    }
  }
}

function replyTo(question: Question, answer: Answer, effect: Extract<Effect, { does: 'delay' | 'garble' }>): ChatReply {
  // A reply without a score has none that could be garbled.
  if (answer === NOT_READ) return { content: writeAnswer(answer), finishReason: 'stop' };
  if (effect.does === 'garble') return effect.garble(answer);
  if (question.kind === 'digit') return digitReply(answer.scores[0], question.topLogprobs ?? 0);
  return { content: writeAnswer(answer), finishReason: 'stop' };
}

/** Lets a server die and come back on the same port. */
class Mortality {
  #timer: NodeJS.Timeout | null = null;

  constructor(
    private readonly server: Server,
    private readonly host: string,
  ) {}

  /** Does nothing while it is already dead. */
  die(milliseconds: number): void {
    if (this.#timer !== null) return;
    const { port } = this.server.address() as AddressInfo;
    this.server.close();
    this.server.closeAllConnections();
    const revive = (): void => {
      // Another program may have taken the port meanwhile, as happens to real servers: it is tried again.
      const taken = (): void => {
        this.#timer = setTimeout(revive, Math.max(100, milliseconds));
      };
      this.server.once('error', taken);
      this.server.listen(port, this.host, () => {
        this.server.off('error', taken);
        this.#timer = null;
      });
    };
    this.#timer = setTimeout(revive, milliseconds);
  }

  async end(): Promise<void> {
    if (this.#timer !== null) clearTimeout(this.#timer);
    await new Promise<void>((resolve) => {
      this.server.close(() => resolve());
      this.server.closeAllConnections();
    });
  }
}

/** The server of a judge, not listening yet. */
function createJudge(
  options: Omit<JudgeOptions, 'port'>,
  die: Service['die'],
): { readonly server: HttpServer; readonly load: Load } {
  const sight = openSight(options.geometry ?? DEFAULT_GEOMETRY);
  const load = new Load(options.maxConcurrency ?? null);
  const { biases } = options;
  const answer = (question: Question): Promise<Answer | null> =>
    biases === undefined ? look(question, sight) : lookBiased(question, sight, biases);
  const service: Service = {
    models: [...new Set([JUDGE_MODEL, ...(options.models ?? [])])],
    answer: options.scores === 'digest' ? async (question) => digestAnswer(question) : answer,
    latencyMs: options.latencyMs ?? 0,
    faults: options.faults ?? null,
    load,
    die,
  };
  const { host, token = null } = options;
  const onDefect = (error: unknown): void => process.emitWarning(error instanceof Error ? error : String(error));
  const server = new HttpServer({
    name: 'the judge',
    host,
    token,
    routes: routesOf(service),
    limits: LIMITS,
    onDefect,
  });
  return { server, load };
}

/** Starts the rule judge. Raises EndpointError when the address is taken or not on this machine, ConfigError when it needs a token and has none. */
export async function startJudge(options: JudgeOptions): Promise<RunningJudge> {
  const { server, load } = createJudge(options, (milliseconds) => mortality.die(milliseconds));
  const mortality = new Mortality(server.node, options.host);
  const origin = await server.listen(options.port);
  return {
    url: `${origin}/v1`,
    stats: () => load.stats(),
    close: () => mortality.end(),
  };
}

/** The content of `GET /stats`: counts of chats since the start. */
export interface JudgeStats {
  readonly requests: number;
  readonly in_flight: number;
  /** The most that were under way at once, including refused ones. */
  readonly max_in_flight: number;
  /** Refused because too many were under way. */
  readonly refused: number;
  /** Injected faults by kind. */
  readonly faults: Readonly<Record<string, number>>;
}

export class Load {
  #requests = 0;
  #inFlight = 0;
  #most = 0;
  #refused = 0;
  #looks = 0;
  readonly #faults = new Map<string, number>();

  /** @param limit more chats at once than this are refused; null for no limit. */
  constructor(private readonly limit: number | null) {}

  /** Counts a chat until its response is over, sent or not. Returns its number, from 0, and whether it has to be refused. */
  begin(response: ServerResponse): { readonly number: number; readonly refused: boolean } {
    const number = this.#requests++;
    this.#most = Math.max(this.#most, ++this.#inFlight);
    response.once('close', () => this.#inFlight--);
    const refused = this.limit !== null && this.#inFlight > this.limit;
    if (refused) this.#refused++;
    return { number, refused };
  }

  /** Counts a look at the list of models; returns its number, from 0. */
  countListing(): number {
    return this.#looks++;
  }

  countFault(name: string): void {
    this.#faults.set(name, (this.#faults.get(name) ?? 0) + 1);
  }

  stats(): JudgeStats {
    return {
      requests: this.#requests,
      in_flight: this.#inFlight,
      max_in_flight: this.#most,
      refused: this.#refused,
      faults: Object.fromEntries([...this.#faults].sort(([a], [b]) => (a < b ? -1 : 1))),
    };
  }
}
