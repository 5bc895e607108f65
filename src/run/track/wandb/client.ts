/**
 * Requests to a W&B server: GraphQL, the stream of a run's files, and uploads.
 * Requests and retries follow W&B's own SDK (wandb/wandb, core). Errors are created from scratch, because errors of
 * axios contain request headers and therefore the key.
 */
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import axios, { type AxiosInstance, type AxiosResponse } from 'axios';
import { systemClock, type Clock } from '../../../core/clock.js';
import { EndpointError, printable } from '../../../core/errors.js';
import { MAX_WAIT_MS, retry, TransientError, type Jitter, type RetryPolicy } from '../../../core/retry.js';
import { byStatus, retryAfterMs, type StatusTable } from '../../../core/http/status.js';
import { redactor, type Redact } from '../../../core/http/key.js';

/** Pauses and timeout of a client's attempts. A client retries until its signal aborts. */
export interface WandbRetryPolicy extends Omit<RetryPolicy, 'retries'> {
  readonly attemptTimeoutMs: number;
}

const defaultRetryPolicy: WandbRetryPolicy = { backoffBaseMs: 2000, backoffCapMs: 60_000, attemptTimeoutMs: 180_000 };
/** As in W&B's own SDK, a pause is up to a quarter longer. */
const JITTER: Jitter = [1, 1.25];

const MAX_REPLY_BYTES = 64 * 1024 * 1024;

type ReplyKind = 'taken' | 'transient' | 'refused';
/** The meaning of a reply's status. Retrying cannot change a refusal. */
const STATUSES: StatusTable<ReplyKind> = {
  '2xx': 'taken',
  ...Object.fromEntries([400, 401, 403, 404, 409, 410, 413, 422, 501].map((status) => [status, 'refused' as const])),
  '4xx': 'transient',
  '5xx': 'transient',
  rest: 'refused',
};
/** For an operation that two writers may perform at the same time. */
const RACE_STATUSES: StatusTable<ReplyKind> = { ...STATUSES, 409: 'transient' };

/** The server answered and refused the request. */
export class WandbRefusedError extends EndpointError {
  constructor(
    readonly status: number,
    message: string,
    details: { readonly where: string; readonly next?: string },
  ) {
    super(message, details);
  }
}

/** The request was abandoned because no one waits for it any more. */
export class GivenUpError extends Error {}

export interface WandbClientOptions {
  readonly baseUrl: string;
  readonly key: string;
  /** Ends every request and every pause. */
  readonly signal: AbortSignal;
  readonly retryPolicy?: WandbRetryPolicy | undefined;
  readonly clock?: Clock | undefined;
  /** Called once per period in which the server does not answer. */
  readonly onAway?: (found: string) => void;
}

export class WandbClient {
  readonly #api: AxiosInstance;
  /** Sends no key, because external storage must not see it. */
  readonly #storage: AxiosInstance;
  readonly #redact: Redact;
  readonly #retryPolicy: WandbRetryPolicy;
  readonly #clock: Clock;
  #away = false;
  /** When the server last accepted something, on this client's clock. */
  lastAcceptedMs: number;

  constructor(private readonly options: WandbClientOptions) {
    const { baseUrl, key, retryPolicy = defaultRetryPolicy, clock = systemClock } = options;
    this.#retryPolicy = retryPolicy;
    this.#clock = clock;
    this.lastAcceptedMs = clock.now();
    this.#redact = redactor(key);
    const common = {
      // Every status is a valid answer, and its text is parsed here.
      validateStatus: () => true,
      responseType: 'text' as const,
      transformResponse: (text: unknown) => text,
      maxBodyLength: Infinity,
      maxContentLength: MAX_REPLY_BYTES,
      maxRedirects: 0,
      httpAgent: new HttpAgent({ keepAlive: true }),
      httpsAgent: new HttpsAgent({ keepAlive: true }),
    };
    this.#api = axios.create({
      ...common,
      baseURL: baseUrl,
      headers: {
        Authorization: `Basic ${Buffer.from(`api:${key}`).toString('base64')}`,
        'Content-Type': 'application/json',
        'User-Agent': 'editrl',
      },
    });
    this.#storage = axios.create({ ...common, maxRedirects: 3 });
  }

  get baseUrl(): string {
    return this.options.baseUrl;
  }

  /**
   * Runs one GraphQL operation and retries until it is answered.
   * Raises WandbRefusedError for an answer with errors, GivenUpError once the signal is aborted. With `racing`, a
   * conflict comes from two writers at the same time and is retried.
   */
  async graphql(
    operation: string,
    query: string,
    variables: Readonly<Record<string, unknown>>,
    { racing = false } = {},
  ): Promise<Readonly<Record<string, unknown>>> {
    const body = JSON.stringify({ operationName: operation, query, variables });
    const statuses = racing ? RACE_STATUSES : STATUSES;
    const reply = await this.#persevere(operation, statuses, (signal) => this.#api.post('/graphql', body, { signal }));
    const parsed = parseObject(reply.data);
    const { data, errors } = parsed ?? {};
    if (Array.isArray(errors) && errors.length > 0) throw this.#refusal(200, operation, errorMessages(parsed));
    if (typeof data === 'object' && data !== null) return data as Record<string, unknown>;
    throw this.#refusal(reply.status, operation, 'the server is not W&B: its reply is not GraphQL');
  }

  /**
   * Sends lines of a run's files. Returns whether someone pressed Stop on the run's page. Raises the errors of
   * `graphql`.
   */
  async stream(path: string, body: string): Promise<{ readonly stopped: boolean }> {
    const reply = await this.#persevere('file_stream', STATUSES, (signal) => this.#api.post(path, body, { signal }));
    // The lines have been accepted, whatever else the reply contains.
    return { stopped: parseObject(reply.data)?.['stopped'] === true };
  }

  /** Uploads a file to the address that the server returned. Raises the errors of `graphql`. */
  async put(url: string, headers: Readonly<Record<string, string>>, bytes: Uint8Array): Promise<void> {
    // axios would otherwise set a content type, which a signed address may not allow.
    const sent = { 'Content-Type': false, 'Content-Length': bytes.length, ...headers };
    await this.#persevere('upload', STATUSES, (signal) =>
      this.#storage.put(url, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), { headers: sent, signal }),
    );
  }

  async #persevere(
    operation: string,
    statuses: StatusTable<ReplyKind>,
    send: (signal: AbortSignal) => Promise<AxiosResponse<string>>,
  ): Promise<AxiosResponse<string>> {
    const reply = await retry(() => this.#try(operation, statuses, send), {
      policy: { ...this.#retryPolicy, retries: Infinity },
      signal: this.options.signal,
      jitter: JITTER,
      onRetry: ({ found }, failures) => {
        if (this.#away || failures < 2) return;
        this.#away = true;
        this.options.onAway?.(found);
      },
      clock: this.#clock,
    });
    this.#away = false;
    this.lastAcceptedMs = this.#clock.now();
    return reply;
  }

  async #try(
    operation: string,
    statuses: StatusTable<ReplyKind>,
    send: (signal: AbortSignal) => Promise<AxiosResponse<string>>,
  ): Promise<AxiosResponse<string>> {
    const { signal } = this.options;
    if (signal.aborted) throw new GivenUpError();
    const late = AbortSignal.timeout(this.#retryPolicy.attemptTimeoutMs);
    let reply: AxiosResponse<string>;
    try {
      reply = await send(AbortSignal.any([signal, late]));
    } catch (cause) {
      if (signal.aborted) throw new GivenUpError();
      throw new TransientError(
        late.aborted ? `no reply within ${this.#retryPolicy.attemptTimeoutMs / 1000} s` : nameOf(cause),
      );
    }
    const { status } = reply;
    const meaning = byStatus(statuses, status);
    if (meaning === 'taken') return reply;
    if (meaning === 'refused') {
      throw this.#refusal(status, operation, errorMessages(parseObject(reply.data)) || reply.data.slice(0, 200));
    }
    const waitMs = retryAfterMs((name) => reply.headers[name]);
    throw new TransientError(`status ${status}`, waitMs === null ? null : Math.min(MAX_WAIT_MS, waitMs));
  }

  #refusal(status: number, operation: string, message: string): WandbRefusedError {
    const where = this.options.baseUrl;
    if (status === 401 || status === 403) {
      return new WandbRefusedError(
        status,
        `W&B rejected the API key of ${this.options.key.length} characters (${status})`,
        {
          where,
          next: 'Set WANDB_API_KEY, or the password in ~/.netrc, to a key of this server that may write to the project.',
        },
      );
    }
    const words = printable(this.#redact(message)).trim();
    return new WandbRefusedError(status, `W&B rejected ${operation} (${status}${words === '' ? '' : `: ${words}`})`, {
      where,
    });
  }
}

/** Headers that a server requests for an upload, each as `name: value`. */
export function headersOf(lines: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const colon = line.indexOf(':');
      return [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
    }),
  );
}

/** How a connection failed, without anything that was sent. */
function nameOf(cause: unknown): string {
  const { code, name } = cause as { readonly code?: unknown; readonly name?: unknown };
  return typeof code === 'string' ? code : typeof name === 'string' ? name : 'no connection';
}

function parseObject(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

/** The message of a refusal, in one of the three forms that servers use. */
function errorMessages(reply: Readonly<Record<string, unknown>> | null): string {
  const list = Array.isArray(reply?.['errors']) ? (reply['errors'] as unknown[]) : [reply?.['error']];
  return list
    .flatMap((one) => {
      if (typeof one === 'string') return [one];
      const { message } = (one ?? {}) as { readonly message?: unknown };
      return typeof message === 'string' ? [message] : [];
    })
    .join('; ')
    .slice(0, 300);
}

/**
 * JSON with NaN and Infinity, as Python writes it. Supports lists, plain objects, texts, numbers, booleans and null.
 * Leaves out undefined values.
 */
export function extendedJson(value: unknown): string {
  if (typeof value === 'number') return Number.isFinite(value) ? JSON.stringify(value) : String(value);
  if (Array.isArray(value)) return `[${value.map(extendedJson).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value) ?? 'null';
  const fields = Object.entries(value).flatMap(([key, item]) =>
    item === undefined ? [] : [`${JSON.stringify(key)}:${extendedJson(item)}`],
  );
  return `{${fields.join(',')}}`;
}

/** Parses such JSON. Returns an object, or null for anything else. */
export function parseExtendedJson(text: string): Record<string, unknown> | null {
  const words = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/g;
  const marked = text.replace(words, (word) => (word.startsWith('"') ? word : `"\\u0000${word}"`));
  try {
    const value = JSON.parse(marked, (_key, item: unknown) =>
      typeof item === 'string' && item.startsWith('\0') ? Number(item.slice(1)) : item,
    ) as unknown;
    return typeof value === 'object' && value !== null && !Array.isArray(value)
      ? (value as Record<string, unknown>)
      : null;
  } catch {
    return null;
  }
}
