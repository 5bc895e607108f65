/**
 * The rule judge behind the protocol of a VLM server: a client can distinguish it from vLLM only by the list of `/v1/models`. It judges by
 * rules and is not a VLM: it reads scenes and signs of the tiny world, and finds everything else unreadable.
 */
import { randomUUID } from 'node:crypto';
import { sleep, systemClock } from '../../core/clock.js';
import { json, type Reply } from '../../core/http/body.js';
import { Refusal } from '../../core/http/refusal.js';
import { HttpServer, type Call, type HttpLimits, type Route } from '../../core/http/server.js';
import { DEFAULT_GEOMETRY, type Geometry } from '../../data/tiny/world.js';
import { JUDGE_MODEL } from '../judge/endpoints.js';
import type { Biases } from './biases.js';
import { answerQuestion, answerWithBiases, NOT_READ, createReaders } from './answers.js';
import {
  writeAnswer,
  type Answer,
  digitReply,
  completion,
  parseRequest,
  readQuestion,
  type ChatReply,
  type Question,
} from './protocol.js';

export { JUDGE_MODEL };

export interface JudgeOptions {
  /** 0 takes a free port. */
  readonly port: number;
  readonly host: string;
  /** The token that callers must send. Null (the default) admits every program, which is allowed only on a loopback address. */
  readonly token?: string | null;
  /** The grid of the scenes. Images of another size are resampled. */
  readonly geometry?: Geometry;
  /** Other model names that it answers to. */
  readonly models?: readonly string[];
  /** Minimum time from a request's arrival to its answer. */
  readonly latencyMs?: number;
  /** Its biases, none by default. */
  readonly biases?: Biases;
}

export interface RunningJudge {
  /** The base URL of the API, `/v1` included. */
  readonly url: string;
  stats(): JudgeStats;
  /** Stops listening and drops open connections. */
  close(): Promise<void>;
}

/** The content of `GET /stats`: chat requests since the start. */
export interface JudgeStats {
  requests: number;
  in_flight: number;
  /** The most that were in flight at once. */
  max_in_flight: number;
}

/** Two images of any sensible size fit into a body. The number of pixels is limited separately. */
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
/** A context length as vLLM would list it. */
const MAX_MODEL_LEN = 8192;
/** The reply of a judge that gives no score. */
const UNDECIDED: ChatReply = { content: 'I cannot compare these images.', finishReason: 'stop' };

/** Starts the rule judge. Raises EndpointError if the address cannot be used, ConfigError if it needs a token and has none. */
export async function startJudge(options: JudgeOptions): Promise<RunningJudge> {
  const { host, port, token = null, latencyMs = 0, biases } = options;
  const readers = createReaders(options.geometry ?? DEFAULT_GEOMETRY);
  const stats: JudgeStats = { requests: 0, in_flight: 0, max_in_flight: 0 };
  const models = [...new Set([JUDGE_MODEL, ...(options.models ?? [])])].map((id) => ({
    id,
    object: 'model',
    created: 0,
    owned_by: 'editrl',
    root: JUDGE_MODEL,
    parent: null,
    max_model_len: MAX_MODEL_LEN,
  }));
  const modelNamed = (name: string): (typeof models)[number] => {
    const found = models.find(({ id }) => id === name);
    if (found !== undefined) return found;
    throw new Refusal('not_found', `The model \`${name}\` does not exist.`, { param: 'model' });
  };

  async function chat({ response, gone, read }: Call): Promise<Reply | null> {
    const started = performance.now();
    stats.requests++;
    stats.max_in_flight = Math.max(stats.max_in_flight, ++stats.in_flight);
    response.once('close', () => stats.in_flight--);
    const request = parseRequest(await read());
    modelNamed(request.model);
    const question = await readQuestion(request);
    const answer = await (biases === undefined
      ? answerQuestion(question, readers)
      : answerWithBiases(question, readers, biases));
    const left = started + latencyMs - performance.now();
    if (left > 0) await sleep(systemClock, left, gone);
    if (gone.aborted) return null;
    const id = `chatcmpl-${randomUUID().replaceAll('-', '')}`;
    const created = Math.floor(Date.now() / 1000);
    return json(200, completion(id, request.model, created, question, replyTo(question, answer)));
  }

  const routes: Readonly<Record<string, Route>> = {
    '/health': { open: true, GET: () => ({ status: 200, type: 'application/json', body: '' }) },
    '/stats': { GET: () => json(200, stats) },
    '/v1/models': { GET: () => json(200, { object: 'list', data: models }) },
    '/v1/models/': { GET: ({ rest }) => json(200, modelNamed(rest)) },
    '/v1/chat/completions': { POST: chat },
  };
  const onDefect = (error: unknown): void => process.emitWarning(error instanceof Error ? error : String(error));
  const server = new HttpServer({ name: 'the judge', host, token, routes, limits: LIMITS, onDefect });
  const origin = await server.listen(port);
  return { url: `${origin}/v1`, stats: () => ({ ...stats }), close: () => server.close() };
}

function replyTo(question: Question, answer: Answer | null): ChatReply {
  if (answer === null) return UNDECIDED;
  if (question.kind === 'digit' && answer !== NOT_READ) {
    return digitReply(answer.scores[0], question.topLogprobs ?? 0);
  }
  return { content: writeAnswer(answer), finishReason: 'stop' };
}
