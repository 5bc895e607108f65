/**
 * Requests to a W&B server: GraphQL, the stream of a run's files, uploads. What is asked, and what is tried again, follows W&B's own SDK
 * (wandb/wandb, core). Errors are made anew from what is known: those of axios hold the request's headers, and with them the key.
 */
import { Agent as HttpAgent } from 'node:http';
import { Agent as HttpsAgent } from 'node:https';
import axios, { type AxiosInstance, type AxiosResponse } from 'axios';
import { sleep, systemClock, type Clock } from '../../core/clock.js';
import { EndpointError, printable } from '../../core/errors.js';
import { redactor, type Redact } from '../../http/redact.js';

/** How patient a client is; tests are less so. */
export interface Patience {
  /** The pause before the second try; doubled for each further one. */
  readonly firstMs: number;
  readonly longestMs: number;
  /** How long one try may take. */
  readonly tryMs: number;
}

export const usualPatience: Patience = { firstMs: 2000, longestMs: 60_000, tryMs: 180_000 };

/** A server that asks to be left alone for longer is asked again after this. */
const LONGEST_WAIT_MS = 300_000;
const LONGEST_REPLY_BYTES = 64 * 1024 * 1024;

/** What trying again cannot change. */
const FINAL: ReadonlySet<number> = new Set([400, 401, 403, 404, 409, 410, 413, 422, 501]);

/** The server answers, and will not take it. */
export class WandbRefused extends EndpointError {
  constructor(
    readonly status: number,
    message: string,
    details: { readonly where: string; readonly next?: string },
  ) {
    super(message, details);
  }
}

/** Given up, since nobody waits for it any more. */
export class GivenUp extends Error {}

/** A try that may go better the next time. */
class Passing extends Error {
  constructor(
    readonly found: string,
    readonly waitMs: number | null = null,
  ) {
    super(found);
  }
}

export interface WandbClientOptions {
  readonly baseUrl: string;
  readonly key: string;
  /** Ends every request and every pause. */
  readonly signal: AbortSignal;
  readonly patience?: Patience;
  readonly clock?: Clock;
  /** Told once of each stretch of time in which the server does not answer. */
  readonly onAway?: (found: string) => void;
}

export class WandbClient {
  readonly #api: AxiosInstance;
  /** Without the key, which storage elsewhere must not see. */
  readonly #storage: AxiosInstance;
  readonly #redact: Redact;
  readonly #patience: Patience;
  readonly #clock: Clock;
  #away = false;
  /** When the server last took something, on this client's clock. */
  heardMs: number;

  constructor(private readonly options: WandbClientOptions) {
    const { baseUrl, key, patience = usualPatience, clock = systemClock } = options;
    this.#patience = patience;
    this.#clock = clock;
    this.heardMs = clock.now();
    this.#redact = redactor(key);
    const common = {
      // A status is an answer like any other, and its text is read here.
      validateStatus: () => true,
      responseType: 'text' as const,
      transformResponse: (text: unknown) => text,
      maxBodyLength: Infinity,
      maxContentLength: LONGEST_REPLY_BYTES,
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

  /**
   * One GraphQL operation, tried again until it is answered. Raises WandbRefused for an answer of errors, GivenUp once the signal is
   * aborted. `racing`: a conflict is that of two writers at one moment, and passes.
   */
  async graphql(
    operation: string,
    query: string,
    variables: Readonly<Record<string, unknown>>,
    { racing = false } = {},
  ): Promise<Readonly<Record<string, unknown>>> {
    const body = JSON.stringify({ operationName: operation, query, variables });
    const reply = await this.#persevere(operation, racing, (signal) => this.#api.post('/graphql', body, { signal }));
    const parsed = parsedObject(reply.data);
    const { data, errors } = parsed ?? {};
    if (Array.isArray(errors) && errors.length > 0) throw this.#refusal(200, operation, saidIn(parsed));
    if (typeof data === 'object' && data !== null) return data as Record<string, unknown>;
    throw this.#refusal(reply.status, operation, 'what answers is no W&B server: its reply is not one of GraphQL');
  }

  /** Sends lines of a run's files; says whether somebody pressed Stop on its page. Raises as `graphql`. */
  async stream(path: string, body: string): Promise<{ readonly stopped: boolean }> {
    const reply = await this.#persevere('file_stream', false, (signal) => this.#api.post(path, body, { signal }));
    // What is taken is taken, whatever the reply says besides.
    return { stopped: parsedObject(reply.data)?.['stopped'] === true };
  }

  /** Uploads a file to where the server said. Raises as `graphql`. */
  async put(url: string, headers: Readonly<Record<string, string>>, bytes: Uint8Array): Promise<void> {
    // axios would else name a content type, which a signed address need not allow.
    const sent = { 'Content-Type': false, 'Content-Length': bytes.length, ...headers };
    await this.#persevere('upload', false, (signal) =>
      this.#storage.put(url, Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length), { headers: sent, signal }),
    );
  }

  async #persevere(
    operation: string,
    racing: boolean,
    send: (signal: AbortSignal) => Promise<AxiosResponse<string>>,
  ): Promise<AxiosResponse<string>> {
    for (let tries = 0; ; tries++) {
      try {
        const reply = await this.#try(operation, racing, send);
        this.#away = false;
        this.heardMs = this.#clock.now();
        return reply;
      } catch (error) {
        if (!(error instanceof Passing)) throw error;
        if (!this.#away && tries > 0) {
          this.#away = true;
          this.options.onAway?.(error.found);
        }
        const { firstMs, longestMs } = this.#patience;
        const backOffMs = Math.min(longestMs, firstMs * 2 ** Math.min(tries, 20) * (1 + Math.random() / 4));
        await sleep(this.#clock, error.waitMs ?? backOffMs, this.options.signal);
      }
    }
  }

  async #try(
    operation: string,
    racing: boolean,
    send: (signal: AbortSignal) => Promise<AxiosResponse<string>>,
  ): Promise<AxiosResponse<string>> {
    const { signal } = this.options;
    if (signal.aborted) throw new GivenUp();
    const late = AbortSignal.timeout(this.#patience.tryMs);
    let reply: AxiosResponse<string>;
    try {
      reply = await send(AbortSignal.any([signal, late]));
    } catch (cause) {
      if (signal.aborted) throw new GivenUp();
      throw new Passing(late.aborted ? `no answer within ${this.#patience.tryMs / 1000} s` : nameOf(cause));
    }
    const { status } = reply;
    if (status >= 200 && status < 300) return reply;
    const final = (FINAL.has(status) && !(racing && status === 409)) || status < 400;
    if (final) throw this.#refusal(status, operation, saidIn(parsedObject(reply.data)) || reply.data.slice(0, 200));
    throw new Passing(`it answers ${status}`, waitOf(reply.headers['retry-after']));
  }

  #refusal(status: number, operation: string, said: string): WandbRefused {
    const where = this.options.baseUrl;
    if (status === 401 || status === 403) {
      return new WandbRefused(
        status,
        `W&B does not take the key of ${this.options.key.length} characters (${status})`,
        {
          where,
          next: 'Set WANDB_API_KEY, or the password in ~/.netrc, to a key of this server that may write to the project.',
        },
      );
    }
    const words = printable(this.#redact(said)).trim();
    return new WandbRefused(status, `W&B refuses ${operation} (${status}${words === '' ? '' : `: ${words}`})`, {
      where,
    });
  }
}

/** How a connection failed, without what was sent. */
function nameOf(cause: unknown): string {
  const { code, name } = cause as { readonly code?: unknown; readonly name?: unknown };
  return typeof code === 'string' ? code : typeof name === 'string' ? name : 'no connection';
}

/** `Retry-After` as seconds or as a date; null where there is none. */
function waitOf(header: unknown): number | null {
  if (typeof header !== 'string' || header.trim() === '') return null;
  const seconds = Number(header);
  const ms = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header) - Date.now();
  return Number.isFinite(ms) ? Math.min(LONGEST_WAIT_MS, Math.max(0, ms)) : null;
}

function parsedObject(text: string): Readonly<Record<string, unknown>> | null {
  try {
    const value = JSON.parse(text) as unknown;
    return typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}

/** What a refusal says, in one of the three forms that servers use. */
function saidIn(reply: Readonly<Record<string, unknown>> | null): string {
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
