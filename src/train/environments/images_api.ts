/** A client of one or several equal servers of the OpenAI images API. Requests one image at a time. */
import OpenAI from 'openai';
import type { AttemptResult } from '../../core/remote/remote.js';
import type { OutageListener } from '../../core/remote/remote.js';
import {
  AwaitedMember,
  type AwaitedRemote,
  gotAnswer,
  misconfigured,
  noAnswer,
  type ReplyOutcome,
  requestFailed,
} from '../../core/remote/remote.js';
import { type Clock, type Deadline, systemClock } from '../../core/clock.js';
import { encodePng, sha256 } from '../../core/images/image.js';
import { base64Bytes } from '../../core/images/image_text.js';
import { checkedKey, noKey } from '../../core/http/key.js';
import { byStatus, retryAfterMs } from '../../core/http/status.js';
import { createHttpPool, type HttpPool } from '../../core/http/pool.js';
import { causeOf, isNotThere } from '../../core/http/request.js';
import { refusedField } from '../../rewards/judge/dialect.js';
import { resolveEndpoints } from '../../rewards/judge/endpoints.js';
import { excerpt } from '../../rewards/judge/parse.js';
import { createClient } from '../../rewards/judge/transport.js';
import { type ImagesServerSettings, parseImageSize, type ImageSize } from '../../config/schema/images_api.js';
import {
  blankImage,
  FIRST_ATTEMPTS,
  maxReplyBytes,
  IMAGE_STATUSES,
  imageIn,
  imageRemote,
  type ImageReply,
  type ServedImage,
} from './served.js';

/** A request for an image. */
export interface ImagesRequest {
  readonly prompt: string;
  readonly seed: number;
  /** The image to edit as a PNG file. Absent if the image is generated from text alone. */
  readonly source?: Uint8Array;
  /** Size such as `512x512`, with at most as many pixels as the settings' size. Default: that size. */
  readonly size?: string;
}

/** The settings that determine requests and the meaning of replies. */
export type ImagesClientSettings = Omit<ImagesServerSettings, 'max_wait_s' | 'api_key_env'>;

export interface ImagesClientOptions extends OutageListener {
  readonly settings: ImagesClientSettings;
  readonly apiKey?: string | undefined;
  /** Receives one-line notes about a server. */
  readonly onNote?: (note: string) => void;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

/** Fields that a request can omit, because some hosted models reject them. */
const DISPENSABLE = ['response_format', 'seed'] as const;
type Dispensable = (typeof DISPENSABLE)[number];

/** A request that any working server can fulfill. */
const PLAIN: ImagesRequest = { prompt: 'a red square', seed: 0 };

class ImageMember extends AwaitedMember {
  readonly client: OpenAI;
  /** Dispensable fields with which it has succeeded. An error that names one of them is about something else. */
  readonly takes = new Set<Dispensable>();

  constructor(url: string, pool: HttpPool, apiKey: string, ...rest: [Clock, { cap: number; alone: boolean }]) {
    super(url, ...rest);
    this.client = createClient(url, apiKey, pool);
  }
}

export class ImagesClient {
  readonly #http: HttpPool;
  readonly #remote: AwaitedRemote<ImageMember, ImagesRequest, ImageReply>;
  readonly #leftOut = new Set<Dispensable>();
  #hasDrawn = false;

  /** Raises ConfigError for an unusable address or key. */
  constructor(private readonly options: ImagesClientOptions) {
    const { settings, apiKey } = options;
    const { concurrency, base_url, size } = settings;
    const key = checkedKey(apiKey, 'the API key of the images server') ?? noKey;
    this.#http = createHttpPool({
      connections: concurrency + 1,
      secret: key,
      maxResponseBytes: maxReplyBytes(parseImageSize(size)),
    });
    const urls = resolveEndpoints(base_url);
    const member = { cap: concurrency, alone: urls.length === 1 };
    this.#remote = imageRemote({
      ...options,
      name: 'images server',
      members: urls.map((url) => new ImageMember(url, this.#http, key, options.clock ?? systemClock, member)),
      attempt: (one, request, attempt) => this.#explained(one, request, attempt),
    });
  }

  /** Base URLs. */
  get urls(): readonly string[] {
    return this.#remote.urls;
  }

  /**
   * Why servers are not ready now, one sentence for each of them. A server that does not list its models is assumed to
   * have the right one. Failures of a server never reject the promise.
   */
  async problems(within: Deadline): Promise<readonly string[]> {
    const found = await Promise.all(this.#remote.members.map((member) => this.#problemOf(member, within)));
    return found.filter((one) => one !== null);
  }

  /**
   * Waits until a server has generated one unused image, so that settings which it rejects are reported before anything
   * else. Raises EndpointError.
   */
  async ready(within: Deadline, work: 'draws' | 'edits' = 'draws'): Promise<void> {
    const { size } = this.options.settings;
    const first = work === 'edits' ? { ...PLAIN, source: await encodePng(blankImage(parseImageSize(size))) } : PLAIN;
    const drawn = await this.#remote.answer(first, within, { maxAttempts: FIRST_ATTEMPTS });
    if ('refused' in drawn) throw this.#remote.error(first, `it rejects '${PLAIN.prompt}': ${drawn.refused}`);
  }

  /** Call once a server has succeeded with these settings. A later refusal may then be due to the prompt. */
  hasDrawn(): void {
    this.#hasDrawn = true;
  }

  /**
   * Generates one image. Raises EndpointError when no server returns one before the deadline or within the attempts.
   */
  draw(request: ImagesRequest, within: Deadline): Promise<ImageReply> {
    return this.#remote.answer(request, within);
  }

  /** Closes the connections. The client must not be used afterwards. */
  close(): Promise<void> {
    return this.#http.close();
  }

  /**
   * Sends a request. If a server refuses without a reason, tries a harmless prompt. If that succeeds, the server has
   * refused the first prompt. Otherwise it rejects the settings, for example because an account is used up, and the
   * prompt is not at fault.
   */
  async #explained(member: ImageMember, request: ImagesRequest, attempt: Deadline): Promise<ImagesAttempt> {
    const tried = await this.#attempt(member, request, attempt);
    if (tried.unexplained !== true || tried.reply.kind !== 'wrong' || !this.#hasDrawn) return tried;
    const { prompt, seed } = PLAIN;
    const source = request.source === undefined ? {} : { source: await encodePng(blankImage(this.#sizeOf(request))) };
    const plain = await this.#attempt(member, { ...request, prompt, seed, ...source }, attempt);
    return plain.reply.kind === 'answered' ? gotAnswer({ refused: tried.reply.found }, 'refused') : plain;
  }

  /** Sends a request, and repeats it without the fields that the server rejects. */
  async #attempt(member: ImageMember, request: ImagesRequest, attempt: Deadline): Promise<ImagesAttempt> {
    for (;;) {
      const sent = DISPENSABLE.filter((field) => !this.#leftOut.has(field));
      const tried = await this.#send(member, request, attempt, sent);
      const refused = sent.find((field) => field === tried.refusedField && !member.takes.has(field));
      if (refused === undefined) return tried;
      this.#leaveOut(refused);
    }
  }

  async #send(
    { client, takes }: ImageMember,
    request: ImagesRequest,
    attempt: Deadline,
    sent: readonly Dispensable[],
  ): Promise<ImagesAttempt> {
    try {
      const body: unknown = await this.#request(client, request, attempt.signal, sent);
      const image = await readImage(body, this.#sizeOf(request));
      if (typeof image !== 'string') {
        this.#hasDrawn = true;
        for (const field of sent) takes.add(field);
      }
      return meaningOf(image);
    } catch (error) {
      return attempt.over
        ? requestFailed(error, attempt, this.options.settings.timeout_s * 1000)
        : meaningOf(error as Error);
    }
  }

  #request(
    client: OpenAI,
    { prompt, seed, source, size = this.options.settings.size }: ImagesRequest,
    signal: AbortSignal,
    sent: readonly Dispensable[],
  ): Promise<unknown> {
    const { settings } = this.options;
    const { served_model: model, extra } = settings;
    const fields = {
      model,
      prompt,
      n: 1,
      size: size as '1024x1024',
      ...(sent.includes('response_format') ? { response_format: 'b64_json' as const } : {}),
      ...(sent.includes('seed') ? { seed } : {}),
      ...extra,
    };
    if (source === undefined) return client.images.generate(fields, { signal });
    const image = new File([source], 'source.png', { type: 'image/png' });
    return client.images.edit({ ...fields, image }, { signal });
  }

  #sizeOf({ size = this.options.settings.size }: ImagesRequest): ImageSize {
    return parseImageSize(size);
  }

  /** Omits a field from now on. Earlier requests in progress may still contain it. */
  #leaveOut(field: Dispensable): void {
    if (this.#leftOut.has(field)) return;
    this.#leftOut.add(field);
    this.options.onNote?.(
      field === 'seed'
        ? 'the images server accepts no seed, so the same prompt gives another image each time'
        : `the images server does not accept ${field}; requests leave it out`,
    );
  }

  async #problemOf({ client, url }: ImageMember, within: Deadline): Promise<string | null> {
    const { served_model: model } = this.options.settings;
    try {
      const { data } = await client.models.list({ signal: within.signal });
      const names = Array.isArray(data) ? data.map(({ id }) => id) : [];
      if (names.length === 0 || names.includes(model)) return null;
      return `${url}: it serves ${names.slice(0, 8).join(', ')}, not '${model}'`;
    } catch (error) {
      if (within.over) return `${url}: no answer in time`;
      if (error instanceof OpenAI.NotFoundError) return null;
      const { reply } = meaningOf(error as Error);
      return reply.kind === 'answered' ? null : `${url}: ${reply.found}`;
    }
  }
}

export type ImagesAttempt = AttemptResult<ReplyOutcome<ImageReply>> & {
  /** The request field that the server rejects, if it names one. */
  readonly refusedField?: string;
  /** The server refuses without stating whether the prompt or the settings are the reason. */
  readonly unexplained?: true;
};

const STATUSES = { ...IMAGE_STATUSES, 409: 'failed' } as const;
/** Statuses of a server that cannot handle this request. */
const UNFIT: ReadonlySet<number> = new Set([400, 413, 422]);
/** Statuses with which a server may refuse a prompt. */
const REFUSING: ReadonlySet<number> = new Set([400, 403, 422]);
/**
 * Codes and types of errors with which servers refuse a prompt. Messages are not searched, because they may quote
 * prompts and models.
 */
const REFUSAL = /content[_ ]?(?:policy|filter|management)|moderation|safety|policy[_ ]violation|nsfw/i;

/**
 * @param result an image, a description of the reply without one, or the client's error. Raises errors that are not
 * about a request.
 */
export function meaningOf(result: ServedImage | string | Error): ImagesAttempt {
  if (result instanceof Error) return meaningOfError(result);
  return typeof result === 'string' ? noAnswer('failed', result) : gotAnswer(result);
}

function meaningOfError(error: Error): ImagesAttempt {
  if (error instanceof OpenAI.APIConnectionError) {
    return noAnswer(isNotThere(error) ? 'away' : 'failed', causeOf(error));
  }
  if (error instanceof OpenAI.APIError) return meaningOfStatus(error as StatusError);
  if (error instanceof SyntaxError) return noAnswer('failed', `it returned broken JSON (${error.message})`);
  throw error;
}

type StatusError = Pick<
  InstanceType<typeof OpenAI.APIError<number | undefined, Headers | undefined>>,
  'status' | 'headers' | 'code' | 'type' | 'param' | 'message'
>;

function meaningOfStatus(error: StatusError): ImagesAttempt {
  const status = Number(error.status);
  const found = excerpt(`HTTP ${error.message}`).slice(1, -1);
  const kind = `${error.code ?? ''} ${error.type ?? ''}`;
  const meaning = byStatus(STATUSES, status);
  if (meaning !== 'refused') {
    return noAnswer(
      meaning,
      found,
      retryAfterMs((name) => error.headers?.get(name)),
    );
  }
  if (REFUSING.has(status) && REFUSAL.test(kind)) return gotAnswer({ refused: found }, 'refused');
  const param = typeof error.param === 'string' ? error.param : null;
  const refused = refusedField({ status, param, words: `${kind} ${error.message}` });
  return {
    ...misconfigured(found, adviceFor(status)),
    ...(refused === null ? {} : { refusedField: refused }),
    ...(UNFIT.has(status) ? { unexplained: true } : {}),
  };
}

function adviceFor(status: number): string {
  if (status === 401 || status === 403) {
    return 'Export the key of the server (environment.api_key_env names the variable).';
  }
  if (status === 404) return 'Check the address (environment.base_url) and the model (environment.served_model).';
  return 'Check environment.served_model, environment.size and environment.extra.';
}

/** The image of a reply, or a description of the problem. */
export async function readImage(body: unknown, size: ImageSize): Promise<ServedImage | string> {
  if (typeof body === 'string') return `it returned text instead of an image: ${excerpt(body)}`;
  const data = field(body, 'data');
  if (!Array.isArray(data)) return `it returned no data: ${excerpt(JSON.stringify(body) ?? 'nothing')}`;
  if (data.length !== 1) {
    return `it returned ${data.length === 0 ? 'no image' : `${data.length} images`}; requested: one`;
  }
  const [entry] = data as readonly unknown[];
  const text = field(entry, 'b64_json');
  if (typeof text !== 'string' || text === '') {
    return typeof field(entry, 'url') === 'string'
      ? "it returned an image's URL instead of the image (b64_json)"
      : 'it returned no image';
  }
  const bytes = base64Bytes(text);
  if (bytes === null) return 'it returned an image that is not base64';
  const image = await imageIn(bytes, size);
  if (typeof image === 'string') return image;
  const revised = field(entry, 'revised_prompt');
  return { image, revised: typeof revised === 'string' && revised !== '' ? revised : null };
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}

/** The settings that determine an image, in addition to the request. */
type Drawing = Pick<ImagesServerSettings, 'served_model' | 'size' | 'extra'>;

/** SHA-256 of everything that determines an image. */
export function requestHashOf(drawing: Drawing, request: ImagesRequest): string {
  const { prompt, seed, source, size = drawing.size } = request;
  const decides: unknown[] = [drawing.served_model, size, drawing.extra, prompt, seed];
  if (source !== undefined) decides.push(sha256(source));
  return sha256(JSON.stringify(decides));
}
