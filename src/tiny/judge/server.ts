/**
 * The rule judge behind the protocol of a VLM server: whoever asks cannot tell it from vLLM but by what `/v1/models` lists. It is a
 * rule judge for the tiny world and no VLM: it reads scenes of that world, and finds everything else unreadable.
 */
import { createHash, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { DataError, EndpointError } from '../../core/errors.js';
import { decodeImage } from '../../core/image.js';
import { DEFAULT_GEOMETRY, type Geometry } from '../world.js';
import { scoreConsistency } from './consistency.js';
import { readScene, type Reading } from './eyes.js';
import { scoreGround } from './ground.js';
import {
  badRequest,
  completion,
  dataUrlBytes,
  parseRequest,
  readQuestion,
  RequestError,
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
}

export interface RunningJudge {
  /** The base URL of the API, `/v1` included. */
  readonly url: string;
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
  readonly #kept = new Map<string, Reading>();

  constructor(private readonly geometry: Geometry) {}

  async read(url: string): Promise<Reading> {
    const key = createHash('sha1').update(url).digest('base64');
    const known = this.#kept.get(key);
    if (known !== undefined) {
      this.#kept.delete(key);
      this.#kept.set(key, known);
      return known;
    }
    const reading = readScene(await decode(dataUrlBytes(url)), this.geometry);
    this.#kept.set(key, reading);
    if (this.#kept.size > KEPT_READINGS) {
      for (const oldest of this.#kept.keys()) {
        this.#kept.delete(oldest);
        break;
      }
    }
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

const ANSWERS: Record<QuestionKind, (images: readonly Reading[], instruction: string) => string> = {
  consistency: ([source, edited], instruction) => {
    const { success, overedit, reasoning } = scoreConsistency(source, instruction, edited);
    return JSON.stringify({ score: [success, overedit], reasoning });
  },
  quality: ([image]) => {
    const { naturalness, artifacts, reasoning } = scoreQuality(image);
    return JSON.stringify({ score: [naturalness, artifacts], reasoning });
  },
  ground: ([truth, predicted], instruction) => {
    const { score, reasoning } = scoreGround(truth, instruction, predicted);
    return `${reasoning}\n<score>${score}</score>`;
  },
};

async function answer(question: Question, eyes: Eyes): Promise<string> {
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

function send(response: ServerResponse, status: number, body: unknown): void {
  const text = body === null ? '' : JSON.stringify(body);
  response.writeHead(status, {
    'content-type': 'application/json',
    'content-length': Buffer.byteLength(text),
  });
  response.end(text);
}

interface Service {
  readonly models: readonly string[];
  readonly eyes: Eyes;
}

type Route = (request: IncomingMessage, service: Service) => Promise<unknown>;

const ROUTES: Readonly<Record<string, Route>> = {
  'GET /health': async () => null,
  'GET /v1/models': async (_request, { models }) => ({
    object: 'list',
    data: models.map((id) => ({
      id,
      object: 'model',
      created: 0,
      owned_by: 'editrl',
      root: JUDGE_MODEL,
      parent: null,
      max_model_len: MAX_MODEL_LEN,
    })),
  }),
  'POST /v1/chat/completions': async (request, { models, eyes }) => {
    const chat = parseRequest(await readBody(request));
    if (!models.includes(chat.model)) {
      throw new RequestError(404, 'NotFoundError', `The model \`${chat.model}\` does not exist.`, 'model');
    }
    const question = readQuestion(chat);
    const created = Math.floor(Date.now() / 1000);
    const id = `chatcmpl-${randomUUID().replaceAll('-', '')}`;
    return completion(id, chat.model, created, question, await answer(question, eyes));
  },
};

async function serve(request: IncomingMessage, response: ServerResponse, service: Service): Promise<void> {
  try {
    const path = new URL(request.url ?? '/', 'http://judge').pathname;
    const route = ROUTES[`${request.method ?? ''} ${path}`] as Route | undefined;
    if (route === undefined) {
      throw new RequestError(404, 'NotFoundError', `There is no ${request.method} ${path} here.`);
    }
    send(response, 200, await route(request, service));
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

async function listen(server: Server, port: number, host: string): Promise<number> {
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  }).catch((cause: unknown) => {
    const code = (cause as NodeJS.ErrnoException).code ?? String(cause);
    throw new EndpointError(`the judge cannot listen there (${code})`, {
      where: `${host}:${port}`,
      next: 'Choose another --port (0 takes a free one) or --host.',
      cause,
    });
  });
  return (server.address() as AddressInfo).port;
}

/** Starts the rule judge. Raises EndpointError when the address is taken or not ours. */
export async function startJudge(options: JudgeOptions): Promise<RunningJudge> {
  const service: Service = {
    models: [...new Set([JUDGE_MODEL, ...(options.models ?? [])])],
    eyes: new Eyes(options.geometry ?? DEFAULT_GEOMETRY),
  };
  const server = createServer((request, response) => void serve(request, response, service));
  // Clients keep connections open between iterations; a server that closes them first makes every reuse a race.
  server.keepAliveTimeout = 600_000;
  server.headersTimeout = 610_000;
  const port = await listen(server, options.port, options.host);
  const host = options.host.includes(':') ? `[${options.host}]` : options.host;
  return {
    url: `http://${host}:${port}/v1`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
