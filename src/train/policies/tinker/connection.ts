/**
 * A client of a server with the Tinker training API.
 * Operations are submitted, and long polls wait for their results. The client waits for a server that is unreachable. A
 * rejection becomes one message with advice.
 */
import {
  type AttemptResult,
  gotAnswer,
  AwaitedMember,
  AwaitedRemote,
  requestFailed,
  noAnswer,
  RUN_AGAIN,
  type ReplyOutcome,
  type ServerOptions,
} from '../../../core/remote/remote.js';
import { type Clock, Deadline, sleep, systemClock } from '../../../core/clock.js';
import { CheckpointError, type EditrlError, EndpointError, type ErrorDetails } from '../../../core/errors.js';
import { checkedKey } from '../../../core/http/key.js';
import { byStatus, retryAfterMs, type StatusTable } from '../../../core/http/status.js';
import { createHttpPool, type HttpPool } from '../../../core/http/pool.js';
import type { PiecewiseBody } from '../../../core/http/request.js';
import { UnreadableReply } from './wire.js';
import { jsonOf } from '../vllm/client.js';

/** A reply of the server itself, so the server is not away. */
export interface Reply {
  readonly status: number;
  readonly isProto: boolean;
  /** The redirect's target. Null without a redirect. */
  readonly location: string | null;
  readonly body: Buffer;
}

interface Sent {
  /** Below `/api/v1`, or a whole address. */
  readonly path: string;
  /** A JSON text, or the bytes of a message. Null for GET and DELETE. */
  readonly body: string | PiecewiseBody | null;
  readonly isDelete?: boolean;
  /** Whether a timeout means that there is no result yet. */
  readonly isPoll?: boolean;
}

/** The meaning of statuses. Callers handle rejections. */
const STATUSES: StatusTable<'away' | 'failed' | 'answered'> = {
  402: 'away',
  // A checkpoint that the server is still writing.
  425: 'away',
  429: 'away',
  502: 'away',
  503: 'away',
  504: 'away',
  '5xx': 'failed',
  rest: 'answered',
};

/** Milliseconds after which a poll without a result is repeated. */
const POLL_MS = 45_000;
/** Minimum milliseconds between polls that return at once without a result. */
const PAUSE_MS = 50;
/** A batch may have many sampled answers and log-probabilities. */
const MAX_REPLY_BYTES = 1024 ** 3;
/** Limit on how often a server may lose the same operation. */
const MAX_LOST = 3;

export class TinkerConnection {
  /** Address without `/api/v1`. */
  readonly url: string;
  readonly clock: Clock;
  readonly #http: HttpPool;
  readonly #remote: AwaitedRemote<AwaitedMember, Sent, Reply>;
  readonly #headers: Readonly<Record<string, string>>;

  /** Accepts addresses with or without `/api/v1`. Raises ConfigError for a key that cannot be a header. */
  constructor(private readonly options: ServerOptions) {
    const { concurrency, timeoutMs, clock = systemClock } = options;
    const key = checkedKey(options.apiKey, 'the API key of the training server');
    this.url = options.url.replace(/\/+$/, '').replace(/\/api\/v1$/, '');
    this.clock = clock;
    this.#http = createHttpPool({ connections: concurrency, secret: key ?? null, maxResponseBytes: MAX_REPLY_BYTES });
    this.#remote = new AwaitedRemote({
      ...options,
      members: [new AwaitedMember(this.url, clock, { cap: concurrency, alone: true })],
      policy: { maxAttempts: 5, attemptTimeoutMs: timeoutMs, retryAfterCapMs: 60_000 },
      attempt: (_member, sent, attempt) => this.#attempt(sent, attempt),
      error: (found, { next = RUN_AGAIN }, { path }) => this.error(`${path}: ${found}`, next),
      away: (found) => found,
    });
    this.#headers = key === undefined ? {} : { 'x-api-key': key };
  }

  /**
   * Returns a reply with any status that is not a failure. Raises EndpointError if the server stays unreachable or fails
   * repeatedly.
   */
  send(path: string, body: string | PiecewiseBody | null, within: Deadline): Promise<Reply> {
    return this.#remote.answer({ path, body }, within);
  }

  /**
   * Downloads a path, following the address to which the server redirects or which it returns. Raises the errors of
   * `refused`.
   */
  async download(path: string, within: Deadline): Promise<Buffer> {
    const first = await this.send(path, null, within);
    let to = first.location;
    if (first.status === 200) ({ url: to } = this.json(path, first) as { url: string | null });
    else if (first.status !== 302 && first.status !== 307) throw this.refused(path, first);
    if (typeof to !== 'string' || !URL.canParse(to, this.url)) {
      throw this.error(`${path}: a reply without an address to download from`, VERSION);
    }
    const second = await this.send(new URL(to, this.url).href, null, within);
    if (second.status !== 200) throw this.refused(path, second);
    return second.body;
  }

  /** Deletes a path. It is no failure if the path or its model no longer exists. Raises the errors of `refused`. */
  async remove(path: string, within: Deadline): Promise<void> {
    const reply = await this.#remote.answer({ path, body: null, isDelete: true }, within);
    if (reply.status === 200 || reply.status === 204) return;
    const refused = this.refused(path, reply);
    const hasNoWay = refused instanceof TinkerError && refused.kind === 'other_version';
    if (hasNoWay || (reply.status !== 404 && reply.status !== 410)) throw refused;
  }

  /** Sends a request that is answered at once and returns its JSON. Raises the errors of `refused`. */
  async ask(path: string, body: object | null, within: Deadline): Promise<unknown> {
    const reply = await this.send(path, body === null ? null : JSON.stringify(body), within);
    if (reply.status !== 200) throw this.refused(path, reply);
    return this.json(path, reply);
  }

  /**
   * Runs an operation and returns its result. `submitted` is the reply to the submission if it has already been read.
   * Raises EndpointError for a failure, CheckpointError if a checkpoint in the request no longer exists.
   */
  async run(path: string, body: string | PiecewiseBody, within: Deadline, submitted?: Reply): Promise<Reply> {
    let first = submitted;
    for (let times = 0; times < MAX_LOST; times++) {
      const reply = first ?? (await this.send(path, body, within));
      first = undefined;
      if (reply.status !== 200) throw this.refused(path, reply);
      const { request_id: id } = this.json(path, reply) as { request_id?: unknown };
      if (typeof id !== 'string') throw this.error(`${path}: a reply without request_id`, VERSION);
      const result = await this.#result(path, id, within);
      // The server was restarted meanwhile and has lost the operation.
      if (result !== null) return result;
    }
    throw this.error(`${path}: it was submitted ${MAX_LOST} times, and its result was lost each time`, RUN_AGAIN);
  }

  /** Parses JSON. Raises EndpointError for anything else. */
  json(path: string, { body }: Reply): unknown {
    try {
      return JSON.parse(body.toString('utf8')) as unknown;
    } catch {
      throw this.error(`${path}: the reply is not JSON: ${body.toString('utf8', 0, 200)}`, VERSION);
    }
  }

  /** Calls `read`. Raises EndpointError if the reply does not follow the protocol. */
  understood<R>(path: string, read: () => R): R {
    try {
      return read();
    } catch (error) {
      if (error instanceof UnreadableReply) throw this.error(`${path}: ${error.message}`, VERSION);
      throw error;
    }
  }

  /** The error for a rejection: CheckpointError if a checkpoint in the request no longer exists. */
  refused(operation: string, { status, body }: Pick<Reply, 'status' | 'body'>): EditrlError {
    const found = replyError({ operation, status, message: errorText(body.toString('utf8')) }, this.url);
    if (found.kind !== 'checkpoint_gone') return found;
    return new CheckpointError(`the training server: ${found.message}`, {
      where: this.url,
      next: found.next ?? RUN_AGAIN,
    });
  }

  /** Sends a heartbeat. No one waits for the reply, because the next request shows whether the server is there. */
  async beat(body: object, withinMs: number): Promise<void> {
    const deadline = new Deadline(this.clock, withinMs);
    await this.#remote
      .look({ path: '/session_heartbeat', body: JSON.stringify(body) }, deadline)
      .finally(() => deadline.dispose());
  }

  /** Reports that the server answers but has to be waited for. */
  waits(found: string): void {
    this.options.onWaiting?.(found, 0);
  }

  /** Reports that the wait is over. */
  back(): void {
    this.options.onBack?.();
  }

  error(message: string, next: string): EndpointError {
    return new TinkerError('failed', `the training server: ${message}`, { where: this.url, next });
  }

  close(): Promise<void> {
    return this.#http.close();
  }

  /** Returns the result. Null if the server has lost the operation. */
  async #result(path: string, id: string, within: Deadline): Promise<Reply | null> {
    const sent: Sent = { path: '/retrieve_future', body: JSON.stringify({ request_id: id }), isPoll: true };
    for (;;) {
      const reply = await this.#remote.answer(sent, within, { attemptTimeoutMs: POLL_MS });
      if (isForgotten(reply)) return null;
      if (reply.status === 200 && reply.isProto) return reply;
      if (reply.status !== 408) {
        if (reply.status !== 200) throw this.refused(path, reply);
        const result = this.json(path, reply) as { type?: unknown; error?: unknown } | null;
        if (typeof result?.error === 'string') {
          throw this.refused(path, { status: 200, body: Buffer.from(result.error) });
        }
        if (result?.type !== 'try_again') return reply;
      }
      await sleep(this.clock, PAUSE_MS, within.signal);
    }
  }

  async #attempt(
    { path, body, isPoll = false, isDelete = false }: Sent,
    attempt: Deadline,
  ): Promise<AttemptResult<ReplyOutcome<Reply>>> {
    try {
      const isBytes = typeof body === 'object';
      const isElsewhere = URL.canParse(path) && new URL(path).origin !== new URL(this.url).origin;
      const response = await this.#http.exchange(URL.canParse(path) ? path : `${this.url}/api/v1${path}`, {
        method: isDelete ? 'DELETE' : body === null ? 'GET' : 'POST',
        headers: {
          // Only this server may get the key.
          ...(isElsewhere ? {} : this.#headers),
          'content-type': isBytes && body !== null ? 'application/x-protobuf' : 'application/json',
        },
        signal: attempt.signal,
        body,
      });
      const { status, headers } = response;
      const type = String(headers['content-type'] ?? '');
      const reply = {
        status,
        isProto: type.startsWith('application/x-protobuf'),
        location: headers.location ?? null,
        body: TEXTS.test(type) ? redacted(response.body, this.#http) : response.body,
      };
      const meaning = byStatus(STATUSES, status);
      if (meaning === 'answered') return gotAnswer(reply);
      return noAnswer(
        meaning,
        `status ${status}: ${errorText(reply.body.toString('utf8'))}`,
        retryAfterMs((name) => headers[name]),
      );
    } catch (error) {
      if (isPoll && attempt.over && attempt.remainingMs() <= 0) {
        return gotAnswer({ status: 408, isProto: false, location: null, body: Buffer.from('') });
      }
      return requestFailed(error, attempt, this.options.timeoutMs);
    }
  }
}

/** Whether a server no longer has a pending operation, for example after a restart. */
function isForgotten({ status, body }: Reply): boolean {
  return status === 410 || (status === 404 && /\b(future|request)\b/i.test(errorText(body.toString('utf8'))));
}

/** Content types of replies that may quote a key. All others are bytes that must not change. */
const TEXTS = /^$|^text\/|json/;

function redacted(body: Buffer, { redact }: HttpPool): Buffer {
  return Buffer.from(redact(body.toString('utf8')));
}

const VERSION = 'Check that a server of the Tinker training API runs there, and its version.';

/** A failed reply. */
export interface FailedReply {
  /** The path of the operation, without `/api/v1`. */
  readonly operation: string;
  readonly status: number;
  readonly message: string;
}

interface Problem {
  readonly is: (refused: FailedReply) => boolean;
  readonly found: string;
  readonly next: string;
}

const creates = ({ operation }: FailedReply): boolean => /^\/create_(model|sampling_session)$/.test(operation);

/** Advice for a server that tokenizes images differently. */
export const IMAGE_SIZES =
  'Set policy.tokenizer to the model of the server, and keep policy.pixels within min_pixels and max_pixels of its preprocessor_config.json, so that the server does not resize images again.';

/** Known problems. The first one that applies is reported. */
const PROBLEMS = {
  wrong_key: {
    is: ({ status }) => status === 401 || status === 403,
    found: 'the server rejects the API key',
    next: 'Export the key of this server (TINKER_API_KEY unless another variable is named), then run the same command again.',
  },
  no_adapter_left: {
    is: ({ message }) => /maximum number of lora adapters/i.test(message),
    found: 'the server has no room for another adapter',
    next: 'End runs that use the server, wait until their sessions expire (5 minutes), or start it with a larger max_lora_adapters.',
  },
  refused_rank: {
    is: (refused) => creates(refused) && /\brank\b/i.test(refused.message),
    found: 'the server rejects the rank of the adapter',
    next: 'Choose a rank that it allows, or start it with a larger max_lora_rank.',
  },
  wrong_base_model: {
    is: (refused) => creates(refused) && /base.?model|unsupported model|not (a )?supported/i.test(refused.message),
    found: 'the server does not serve this base model',
    next: 'Name the model exactly as the server was started with (get_server_capabilities lists its models).',
  },
  other_version: {
    is: ({ status, message }) =>
      status === 405 || status === 415 || (status === 404 && /^(not found|page not found)?\.?$/i.test(message)),
    found: 'the server speaks another version of the Tinker API',
    next: 'Check the address (without /api/v1), and that the server is SkyRL 0.3 or later or another one with this route.',
  },
  session_expired: {
    is: ({ status, message }) => status === 404 && /\bsession\b/i.test(message) && !/sampling/i.test(message),
    found: 'the session has expired',
    next: RUN_AGAIN,
  },
  picture_tokens: {
    is: ({ status, message }) => status < 500 && /expected_tokens/i.test(message),
    found: 'the server and editrl disagree on the number of tokens of an image',
    next: IMAGE_SIZES,
  },
  no_pictures: {
    is: ({ message }) =>
      /\b(image|vision|multi-?modal)/i.test(message) &&
      /not (be )?support|unsupported|not accept|text[- ]only|only \S*text/i.test(message),
    found: 'the server does not accept images',
    next: 'Use a server that accepts images (SkyRL in mode fsdp, with trainer and sampler on the same GPUs) and a vision-language model, or set policy.trainer to {type: onnx}.',
  },
  checkpoint_taken: {
    is: ({ status, message }) => status === 409 && /already exists/i.test(message),
    found: 'a checkpoint of this name has other weights',
    next: 'Delete it, or use another run_name.',
  },
  checkpoint_gone: {
    is: ({ status, message }) => (status === 404 || status === 410) && /checkpoint|weights/i.test(message),
    found: 'the server no longer has the checkpoint',
    next: 'Resume from another checkpoint, or check that the server was started with the same --checkpoints-base.',
  },
  model_gone: {
    is: ({ status, message }) =>
      (status === 404 || status === 410 || status === 400) && /(model|sampl).*not (found|loaded)|lost/i.test(message),
    found: 'the server has lost the model',
    next: RUN_AGAIN,
  },
  refused: {
    is: () => true,
    found: 'the server rejects the request',
    next: 'Read the server log.',
  },
} as const satisfies Readonly<Record<string, Problem>>;
export type ProblemKind = keyof typeof PROBLEMS;

/** The server rejected a request or failed. */
export class TinkerError extends EndpointError {
  constructor(
    readonly kind: ProblemKind | 'failed',
    message: string,
    details: ErrorDetails,
  ) {
    super(message, details);
  }
}

/** The error for a failed reply. */
export function replyError(refused: FailedReply, where: string): TinkerError {
  const kinds = Object.keys(PROBLEMS) as ProblemKind[];
  const kind = kinds.find((each) => PROBLEMS[each].is(refused)) ?? 'refused';
  const { found, next } = PROBLEMS[kind];
  const { operation, status, message } = refused;
  // A failed operation is reported by a reply with status 200.
  const text = status === 200 ? message : `status ${status}: ${message}`;
  return new TinkerError(kind, `${operation}: ${found}: ${text}`, { where, next });
}

/** The text of a server's error: `{detail}` of the framework (a text or a list), `{error, message}`, or any text. */
export function errorText(body: string): string {
  const value = jsonOf(body) as Partial<Record<'detail' | 'message' | 'error', unknown>> | null | undefined;
  const message = value?.detail ?? value?.message ?? value?.error;
  return textOf(message, body).trim().slice(0, 500);
}

function textOf(message: unknown, body: string): string {
  if (typeof message === 'string') return message;
  if (Array.isArray(message)) return (message as unknown[]).map(issue).join('; ');
  if (typeof message === 'object' && message !== null && 'message' in message) return String(message.message);
  return body;
}

function issue(each: unknown): string {
  const { loc, msg } = (each ?? {}) as { readonly loc?: unknown; readonly msg?: unknown };
  return Array.isArray(loc) && typeof msg === 'string' ? `${loc.join('.')}: ${msg}` : JSON.stringify(each);
}
