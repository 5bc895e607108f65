/**
 * The rule judge behind the protocol of a VLM server: whoever asks cannot tell it from vLLM but by what `/v1/models` lists. It is a
 * rule judge for the tiny world and no VLM: it reads scenes of that world, and finds everything else unreadable.
 */
import { LRUCache } from 'lru-cache';
import { createHash, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { DataError } from '../../core/errors.js';
import { decodeImage } from '../../core/image.js';
import { listen } from '../../http/listen.js';
import { DEFAULT_GEOMETRY, type Geometry } from '../world/world.js';
import { digestAnswer, writeAnswer, type Answer } from './answer.js';
import { scoreConsistency } from './consistency.js';
import { digitReply } from './digit.js';
import { readScene, type Reading } from './eyes.js';
import type { Effect, Faults } from './faults.js';
import { scoreGround } from './ground.js';
import { Load, type JudgeStats } from './load.js';
import {
  badRequest,
  completion,
  dataUrlBytes,
  parseRequest,
  readQuestion,
  RequestError,
  type ChatReply,
  type Question,
  type QuestionKind,
} from './protocol.js';
import { scoreQuality } from './quality.js';

export const JUDGE_MODEL = 'editrl-rule-judge';

export interface JudgeOptions {
  /** 0 takes a free port. */
  readonly port: number;
  readonly host: string;
  /** The grid that scenes are read on; images of another size are brought to its size. */
  readonly geometry?: Geometry;
  /** Other model names that it answers to. */
  readonly models?: readonly string[];
  /** `rule` looks at the pictures; `digest` draws meaningless scores from the bytes that were sent, see `digestAnswer`. */
  readonly scores?: 'rule' | 'digest';
  /** No chat is answered earlier than this after it came. */
  readonly latencyMs?: number;
  /** More chats at once than this are refused with status 429. */
  readonly maxConcurrency?: number;
  readonly faults?: Faults;
}

export interface RunningJudge {
  /** The base URL of the API, `/v1` included. */
  readonly url: string;
  stats(): JudgeStats;
  /** Stops listening and drops open connections. */
  close(): Promise<void>;
}

/** Larger bodies are refused: two images of 64 megapixels do not fit, two of any sensible size do. */
const MOST_BODY_BYTES = 64 * 1024 * 1024;
/** A rough length that vLLM would list as its context. */
const MAX_MODEL_LEN = 8192;
/** Readings that are kept: an iteration asks for the same source eight times and for each edited image two or three times. */
const KEPT_READINGS = 1024;

/** Reads data URLs, keeping the latest readings by content. */
class Eyes {
  readonly #kept = new LRUCache<string, Reading>({ max: KEPT_READINGS });

  constructor(private readonly geometry: Geometry) {}

  async read(url: string): Promise<Reading> {
    const key = createHash('sha1').update(url).digest('base64');
    const known = this.#kept.get(key);
    if (known !== undefined) return known;
    const reading = readScene(await decode(dataUrlBytes(url)), this.geometry);
    this.#kept.set(key, reading);
    return reading;
  }
}

async function decode(bytes: Uint8Array) {
  try {
    return await decodeImage(bytes, 'image_url');
  } catch (cause) {
    if (cause instanceof DataError) throw badRequest(`Failed to load image: ${cause.message}`, 'image_url');
    throw cause;
  }
}

const ANSWERS: Record<QuestionKind, (images: readonly Reading[], instruction: string) => Answer> = {
  consistency: ([source, edited], instruction) => {
    const { success, overedit, reasoning } = scoreConsistency(source, instruction, edited);
    return { form: 'list', scores: [success, overedit], reasoning };
  },
  quality: ([image]) => {
    const { naturalness, artifacts, reasoning } = scoreQuality(image);
    return { form: 'list', scores: [naturalness, artifacts], reasoning };
  },
  ground: ([truth, predicted], instruction) => {
    const { score, reasoning } = scoreGround(truth, instruction, predicted);
    return { form: 'tag', scores: [score], reasoning };
  },
  alignment: ([source, edited], instruction) => {
    const { success, overedit, reasoning } = scoreConsistency(source, instruction, edited);
    const { naturalness, artifacts } = scoreQuality(edited);
    return { form: 'list', scores: [Math.min(success, overedit), Math.min(naturalness, artifacts)], reasoning };
  },
  digit: ([source, edited], instruction) => {
    const { success, overedit, reasoning } = scoreConsistency(source, instruction, edited);
    return { form: 'list', scores: [Math.min(success, overedit)], reasoning };
  },
};

async function look(question: Question, eyes: Eyes): Promise<Answer> {
  const readings: Reading[] = [];
  for (const url of question.images) readings.push(await eyes.read(url));
  return ANSWERS[question.kind](readings, question.instruction);
}

async function readBody(request: IncomingMessage): Promise<string> {
  const pieces: Buffer[] = [];
  let size = 0;
  for await (const piece of request as AsyncIterable<Buffer>) {
    size += piece.length;
    if (size > MOST_BODY_BYTES) {
      throw new RequestError(413, 'BadRequestError', `The body is larger than ${MOST_BODY_BYTES} bytes.`);
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString('utf8');
}

function send(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  const text = body === null ? '' : JSON.stringify(body);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}

interface Service {
  readonly models: readonly string[];
  readonly answer: (question: Question) => Promise<Answer>;
  readonly latencyMs: number;
  readonly faults: Faults | null;
  readonly load: Load;
  /** Stops taking connections for so long. */
  readonly die: (milliseconds: number) => void;
}

type Route = (service: Service) => unknown;

const ROUTES: Readonly<Record<string, Route>> = {
  'GET /health': () => null,
  'GET /stats': ({ load }) => load.stats(),
  'GET /v1/models': ({ models, faults, load }) => {
    const listed = faults?.hidesModel(load.look()) === true ? ['another-model'] : models;
    return {
      object: 'list',
      data: listed.map((id) => ({
        id,
        object: 'model',
        created: 0,
        owned_by: 'editrl',
        root: JUDGE_MODEL,
        parent: null,
        max_model_len: MAX_MODEL_LEN,
      })),
    };
  },
};

const CHAT = 'POST /v1/chat/completions';

async function serveChat(request: IncomingMessage, response: ServerResponse, service: Service): Promise<void> {
  const came = performance.now();
  const { number, refused } = service.load.begin(response);
  const body = await readBody(request);
  if (refused) {
    const error = { message: 'Too many requests at once.', type: 'RateLimitError', param: null, code: 429 };
    send(response, 429, { error }, { 'retry-after': '1' });
    return;
  }
  const fault = service.faults?.at(number) ?? null;
  if (fault !== null) service.load.countFault(fault.name);
  const effect: Effect = fault?.effect ?? { does: 'delay', milliseconds: 0 };
  switch (effect.does) {
    case 'hang':
      return;
    case 'reset':
      request.socket.resetAndDestroy();
      return;
    case 'stall':
      response.writeHead(200, { 'content-type': 'application/json' }).write('{"choices": [');
      return;
    case 'die':
      service.die(effect.milliseconds);
      return;
    case 'reply':
      response.writeHead(effect.status, effect.headers).end(effect.body);
      return;
    case 'delay':
    case 'garble': {
      const chat = parseRequest(body);
      if (!service.models.includes(chat.model)) {
        throw new RequestError(404, 'NotFoundError', `The model \`${chat.model}\` does not exist.`, 'model');
      }
      const question = readQuestion(chat);
      const answer = await service.answer(question);
      const right: ChatReply =
        question.kind === 'digit'
          ? digitReply(answer.scores[0], question.topLogprobs ?? 0)
          : { content: writeAnswer(answer), finishReason: 'stop' };
      const reply = effect.does === 'garble' ? effect.garble(answer) : right;
      const more = effect.does === 'delay' ? effect.milliseconds : 0;
      await until(came + service.latencyMs + more, response);
      const created = Math.floor(Date.now() / 1000);
      const id = `chatcmpl-${randomUUID().replaceAll('-', '')}`;
      if (!response.destroyed) send(response, 200, completion(id, chat.model, created, question, reply));
    }
  }
}

/** Waits until that time of `performance.now()`, or until nobody waits for the response any more. */
async function until(time: number, response: ServerResponse): Promise<void> {
  const left = time - performance.now();
  if (left <= 0) return;
  await new Promise<void>((resolve) => {
    const finish = (): void => {
      clearTimeout(timer);
      response.off('close', finish);
      resolve();
    };
    const timer = setTimeout(finish, left);
    response.once('close', finish);
  });
}

async function serve(request: IncomingMessage, response: ServerResponse, service: Service): Promise<void> {
  try {
    const path = new URL(request.url ?? '/', 'http://judge').pathname;
    const call = `${request.method ?? ''} ${path}`;
    if (call === CHAT) {
      await serveChat(request, response, service);
      return;
    }
    const route = ROUTES[call] as Route | undefined;
    if (route === undefined) {
      throw new RequestError(404, 'NotFoundError', `There is no ${request.method} ${path} here.`);
    }
    send(response, 200, route(service));
  } catch (cause) {
    if (response.headersSent || response.destroyed) return;
    if (cause instanceof RequestError) {
      // What is left of a refused body is not read, so the connection cannot be used again.
      if (cause.status === 413) response.setHeader('connection', 'close');
      send(response, cause.status, cause.body());
      return;
    }
    const message = cause instanceof Error ? cause.message : String(cause);
    send(response, 500, { error: { message, type: 'InternalServerError', param: null, code: 500 } });
  }
}

/** Lets a server die and come back on its own port. */
class Mortality {
  #timer: NodeJS.Timeout | null = null;

  constructor(
    private readonly server: Server,
    private readonly host: string,
  ) {}

  /** While it is dead already, nothing more happens to it. */
  die(milliseconds: number): void {
    if (this.#timer !== null) return;
    const { port } = this.server.address() as AddressInfo;
    this.server.close();
    this.server.closeAllConnections();
    const revive = (): void => {
      // Somebody else may have taken the port meanwhile, as happens to real servers: it is tried again.
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

/** The server of a judge, which does not listen yet. */
function createJudge(
  options: Omit<JudgeOptions, 'port' | 'host'>,
  die: Service['die'],
): { server: Server; load: Load } {
  const eyes = new Eyes(options.geometry ?? DEFAULT_GEOMETRY);
  const load = new Load(options.maxConcurrency ?? null);
  const service: Service = {
    models: [...new Set([JUDGE_MODEL, ...(options.models ?? [])])],
    answer:
      options.scores === 'digest' ? async (question) => digestAnswer(question) : (question) => look(question, eyes),
    latencyMs: options.latencyMs ?? 0,
    faults: options.faults ?? null,
    load,
    die,
  };
  const server = createServer((request, response) => void serve(request, response, service));
  // Clients keep connections open between iterations; a server that closes them first makes every reuse a race.
  server.keepAliveTimeout = 600_000;
  server.headersTimeout = 610_000;
  return { server, load };
}

/** The rule judge, faultless, for connections that somebody else has accepted and not read from. */
export function serveConnections(options: Pick<JudgeOptions, 'models'>): (socket: Socket) => void {
  const { server } = createJudge(options, () => undefined);
  return (socket) => {
    server.emit('connection', socket);
    socket.resume();
  };
}

/** Starts the rule judge. Raises EndpointError when the address is taken or not ours. */
export async function startJudge(options: JudgeOptions): Promise<RunningJudge> {
  const { server, load } = createJudge(options, (milliseconds) => mortality.die(milliseconds));
  const mortality = new Mortality(server, options.host);
  const port = await listen(server, 'the judge', options.port, options.host);
  const host = options.host.includes(':') ? `[${options.host}]` : options.host;
  return {
    url: `http://${host}:${port}/v1`,
    stats: () => load.stats(),
    close: () => mortality.end(),
  };
}
