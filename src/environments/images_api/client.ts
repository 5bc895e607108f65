/** A client that asks one or several equal servers of the OpenAI images API for one picture at a time. */
import OpenAI from 'openai';
import { systemClock, type Clock } from '../../core/clock.js';
import type { OutageListener } from '../../balance/outage.js';
import { gotAnswer, AwaitedMember, requestFailed, type AwaitedRemote } from '../../balance/remote.js';
import type { Deadline } from '../../core/deadline.js';
import { encodePng } from '../../core/image.js';
import { checkedKey, noKey } from '../../http/key.js';
import { createHttpPool, type HttpPool } from '../../http/pool.js';
import { resolveEndpoints } from '../../rewards/judge/endpoints.js';
import { createClient } from '../../rewards/judge/transport.js';
import { pictureSize, type ImagesServerSettings, type PictureSize } from '../../schema/images_api.js';
import { FIRST_ATTEMPTS, pictureRemote } from '../served/asking.js';
import { blankPicture, mostReplyBytes, type PictureReply } from '../served/picture.js';
import { meaningOf, type ImagesAttempt } from './meaning.js';
import { readPicture } from './reply.js';

/** A request for a picture. */
export interface ImagesRequest {
  readonly prompt: string;
  readonly seed: number;
  /** The picture to edit, as a PNG file; absent if a picture is drawn from words alone. */
  readonly source?: Uint8Array;
  /** Its size, such as `512x512`, with at most as many pixels as the settings' size; default: that size. */
  readonly size?: string;
}

/** The settings that decide the requests and what they mean. */
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

/** Fields that a request can do without, because some hosted models refuse them. */
const DISPENSABLE = ['response_format', 'seed'] as const;
type Dispensable = (typeof DISPENSABLE)[number];

/** A request that any working server can draw. */
const PLAIN: ImagesRequest = { prompt: 'a red square', seed: 0 };

class ImageMember extends AwaitedMember {
  readonly client: OpenAI;
  /** The dispensable fields that it has drawn with: an error that names one of them is about something else. */
  readonly takes = new Set<Dispensable>();

  constructor(url: string, pool: HttpPool, apiKey: string, ...rest: [Clock, { cap: number; alone: boolean }]) {
    super(url, ...rest);
    this.client = createClient(url, apiKey, pool);
  }
}

export class ImagesClient {
  readonly #http: HttpPool;
  readonly #remote: AwaitedRemote<ImageMember, ImagesRequest, PictureReply>;
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
      maxResponseBytes: mostReplyBytes(pictureSize(size)),
    });
    const urls = resolveEndpoints(base_url);
    const member = { cap: concurrency, alone: urls.length === 1 };
    this.#remote = pictureRemote({
      ...options,
      name: 'images server',
      members: urls.map((url) => new ImageMember(url, this.#http, key, options.clock ?? systemClock, member)),
      attempt: (one, asked, attempt) => this.#explained(one, asked, attempt),
    });
  }

  /** Base URLs. */
  get urls(): readonly string[] {
    return this.#remote.urls;
  }

  /**
   * Why the servers cannot be asked now, one sentence for each that cannot; a server that does not list its models is assumed to have the right one.
   * Never rejects for what a server does.
   */
  async look(within: Deadline): Promise<readonly string[]> {
    const found = await Promise.all(this.#remote.members.map((member) => this.#lookAt(member, within)));
    return found.filter((one) => one !== null);
  }

  /**
   * Waits until a server is there and has drawn one picture, which is thrown away, so that settings it refuses are reported before anything else is
   * done. Raises EndpointError.
   */
  async ready(within: Deadline, work: 'draws' | 'edits' = 'draws'): Promise<void> {
    const { size } = this.options.settings;
    const first = work === 'edits' ? { ...PLAIN, source: await encodePng(blankPicture(pictureSize(size))) } : PLAIN;
    const drawn = await this.#remote.answer(first, within, { maxAttempts: FIRST_ATTEMPTS });
    if ('refused' in drawn) throw this.#remote.error(first, `it refuses '${PLAIN.prompt}': ${drawn.refused}`);
  }

  /** Call once it is known to have drawn with these settings: what it refuses from now on may be the prompt. */
  hasDrawn(): void {
    this.#hasDrawn = true;
  }

  /** Draws one picture. Raises EndpointError when no server gives one within the time or the attempts. */
  draw(asked: ImagesRequest, within: Deadline): Promise<PictureReply> {
    return this.#remote.answer(asked, within);
  }

  /** Closes the connections; the client must not be used afterwards. */
  close(): Promise<void> {
    return this.#http.close();
  }

  /**
   * Asks once. When a server refuses without saying why, tries a harmless prompt: if it draws that, it refused the prompt; if not, it has come to
   * refuse the settings (an account that is used up, for example), which says nothing about the prompt.
   */
  async #explained(member: ImageMember, asked: ImagesRequest, attempt: Deadline): Promise<ImagesAttempt> {
    const tried = await this.#attempt(member, asked, attempt);
    if (tried.unexplained !== true || tried.reply.kind !== 'wrong' || !this.#hasDrawn) return tried;
    const { prompt, seed } = PLAIN;
    const source = asked.source === undefined ? {} : { source: await encodePng(blankPicture(this.#sizeOf(asked))) };
    const plain = await this.#attempt(member, { ...asked, prompt, seed, ...source }, attempt);
    return plain.reply.kind === 'answered' ? gotAnswer({ refused: tried.reply.found }, 'refused') : plain;
  }

  /** Sends a request, and repeats it without the fields that the server refuses. */
  async #attempt(member: ImageMember, asked: ImagesRequest, attempt: Deadline): Promise<ImagesAttempt> {
    for (;;) {
      const sent = DISPENSABLE.filter((field) => !this.#leftOut.has(field));
      const tried = await this.#send(member, asked, attempt, sent);
      const refused = sent.find((field) => field === tried.refusedField && !member.takes.has(field));
      if (refused === undefined) return tried;
      this.#leaveOut(refused);
    }
  }

  async #send(
    { client, takes }: ImageMember,
    asked: ImagesRequest,
    attempt: Deadline,
    sent: readonly Dispensable[],
  ): Promise<ImagesAttempt> {
    try {
      const body: unknown = await this.#request(client, asked, attempt.signal, sent);
      const picture = await readPicture(body, this.#sizeOf(asked));
      if (typeof picture !== 'string') {
        this.#hasDrawn = true;
        for (const field of sent) takes.add(field);
      }
      return meaningOf(picture);
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
    const { served_model: model, negative_prompt, num_inference_steps, guidance_scale, extra } = settings;
    const given = { negative_prompt, num_inference_steps, guidance_scale };
    const fields = {
      model,
      prompt,
      n: 1,
      size: size as '1024x1024',
      ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)),
      ...(sent.includes('response_format') ? { response_format: 'b64_json' as const } : {}),
      ...(sent.includes('seed') ? { seed } : {}),
      ...extra,
    };
    if (source === undefined) return client.images.generate(fields, { signal });
    const image = new File([source], 'source.png', { type: 'image/png' });
    return client.images.edit({ ...fields, image }, { signal });
  }

  #sizeOf({ size = this.options.settings.size }: ImagesRequest): PictureSize {
    return pictureSize(size);
  }

  /** Applies from now on; requests sent before may still contain the field. */
  #leaveOut(field: Dispensable): void {
    if (this.#leftOut.has(field)) return;
    this.#leftOut.add(field);
    this.options.onNote?.(
      field === 'seed'
        ? 'the images server takes no seed: the same prompt gives another picture each time it is asked'
        : `the images server does not take ${field}: it is left out`,
    );
  }

  async #lookAt({ client, url }: ImageMember, within: Deadline): Promise<string | null> {
    const { served_model: model } = this.options.settings;
    try {
      const { data } = await client.models.list({ signal: within.signal });
      const names = Array.isArray(data) ? data.map(({ id }) => id) : [];
      if (names.length === 0 || names.includes(model)) return null;
      return `${url}: it serves ${names.slice(0, 8).join(', ')}, and no model '${model}'`;
    } catch (error) {
      if (within.over) return `${url}: no answer in time`;
      if (error instanceof OpenAI.NotFoundError) return null;
      const { reply } = meaningOf(error as Error);
      return reply.kind === 'answered' ? null : `${url}: ${reply.found}`;
    }
  }
}
