/**
 * Asking one or several equal servers of the OpenAI images API for one picture after another. A server that is away is asked again until the
 * caller's time is over; what goes wrong in a reply is asked for again so many times; what a server refuses of a prompt is not.
 */
import OpenAI from 'openai';
import { Absence, type AbsenceListener } from '../../balance/absence.js';
import { askMembers, type Asking, type AskPolicy, type Tried } from '../../balance/ask.js';
import { Member, Members } from '../../balance/member.js';
import { sleep, systemClock, type Clock } from '../../core/clock.js';
import type { Deadline } from '../../core/deadline.js';
import { EndpointError } from '../../core/errors.js';
import { checkedKey, noKey } from '../../http/key.js';
import { createHttpPool, type HttpPool } from '../../http/pool.js';
import { resolveEndpoints } from '../../rewards/judge/endpoints.js';
import { createClient } from '../../rewards/judge/transport.js';
import { pictureSize, type ImagesApiSettings, type PictureSize } from '../../schema/images_api.js';
import { meaningOf, type Found } from './meaning.js';
import { readPicture, type Answered } from './reply.js';

/** What is asked for. */
export interface PictureAsked {
  readonly prompt: string;
  readonly seed: number;
  /** The picture that is to be edited, as a PNG file; absent where one is drawn from words alone. */
  readonly source?: Uint8Array;
}

/** Of the settings what requests and their meaning follow from. */
export type ImagesClientSettings = Omit<ImagesApiSettings, 'type' | 'max_wait_s' | 'api_key_env'>;

export interface ImagesClientOptions extends AbsenceListener {
  readonly settings: ImagesClientSettings;
  readonly apiKey?: string | undefined;
  /** Told in one line what is worth knowing of a server. */
  readonly onNote?: (note: string) => void;
  readonly clock?: Clock;
  /** Uniform in [0, 1), for backoff jitter only. */
  readonly random?: () => number;
}

/** A server that is away is looked at again after so long. */
const AGAIN_MS = 1000;
/** Servers that fail so often in a row are left alone for a while, where there are others. */
const FAILURES = 8;
const PAUSE_MS = 5000;
/** Before anything was drawn, a server that fails so often is taken for a wrong one. */
const FIRST_ATTEMPTS = 5;
/** The fields that a request can do without: which hosted models refuse. */
const DISPENSABLE = ['response_format', 'seed'] as const;
type Dispensable = (typeof DISPENSABLE)[number];

/** With the server that it was found at. */
type FoundAt = Found & { readonly url: string };

class ImageMember extends Member {
  readonly client: OpenAI;

  constructor(
    url: string,
    pool: HttpPool,
    apiKey: string,
    clock: Clock,
    { cap, alone }: { cap: number; alone: boolean },
  ) {
    // There is no other one to spare a single server for.
    const failures = alone ? Infinity : Math.max(FAILURES, cap);
    super(url, clock, { cap, failures, doubts: failures, pauseMs: PAUSE_MS });
    this.client = createClient(url, apiKey, pool);
  }
}

export class ImagesClient {
  readonly size: PictureSize;
  readonly #http: HttpPool;
  readonly #members: Members<ImageMember>;
  readonly #clock: Clock;
  readonly #absence: Absence;
  readonly #leftOut = new Set<Dispensable>();
  #hasDrawn = false;

  /** Raises ConfigError for an address or a key that cannot be used. */
  constructor(private readonly options: ImagesClientOptions) {
    const { settings, apiKey } = options;
    const { concurrency, base_url, size } = settings;
    const key = checkedKey(apiKey, 'the API key of the images server') ?? noKey;
    this.size = pictureSize(size);
    this.#clock = options.clock ?? systemClock;
    this.#absence = new Absence(this.#clock, options);
    this.#http = createHttpPool({
      connections: concurrency + 1,
      secret: key,
      maxResponseBytes: mostReplyBytes(this.size),
    });
    const urls = resolveEndpoints(base_url);
    const member = { cap: concurrency, alone: urls.length === 1 };
    this.#members = new Members(
      urls.map((url) => new ImageMember(url, this.#http, key, this.#clock, member)),
      'least_loaded',
    );
  }

  /** Base URLs, each ending in `/v1`. */
  get urls(): readonly string[] {
    return this.#members.all.map(({ url }) => url);
  }

  /**
   * Why the servers cannot be asked now, one sentence for each that cannot; a server that does not list its models is taken at its word.
   * Never rejects for what a server does.
   */
  async look(within: Deadline): Promise<readonly string[]> {
    const found = await Promise.all(this.#members.all.map((member) => this.#lookAt(member, within)));
    return found.filter((one) => one !== null);
  }

  /**
   * Waits until a server is there and has drawn one picture, which is thrown away: so that settings which it refuses are told before
   * anything else is done. Raises EndpointError.
   */
  async ready(within: Deadline): Promise<void> {
    const answered = await this.#ask({ prompt: 'a red square', seed: 0 }, within, FIRST_ATTEMPTS);
    if ('refused' in answered) throw this.#error(`it refuses 'a red square': ${answered.refused}`);
  }

  /** It is known to draw what these settings ask for: what it refuses from now on is the prompt. */
  hasDrawn(): void {
    this.#hasDrawn = true;
  }

  /** One picture. Raises EndpointError where no server gives one within the time or the attempts. */
  draw(asked: PictureAsked, within: Deadline): Promise<Answered> {
    return this.#ask(asked, within, this.options.settings.max_attempts);
  }

  /** Closes the connections; nothing may be asked afterwards. */
  close(): Promise<void> {
    return this.#http.close();
  }

  async #ask(asked: PictureAsked, within: Deadline, maxAttempts: number): Promise<Answered> {
    const { timeout_s } = this.options.settings;
    const policy: AskPolicy = {
      maxAttempts,
      attemptTimeoutMs: timeout_s * 1000,
      backoffBaseMs: 250,
      backoffCapMs: 8000,
      retryAfterCapMs: 60_000,
    };
    while (!within.over) {
      const { reply } = await askMembers(this.#asking(asked, policy, within));
      if (reply?.kind === 'answered') return reply.answered;
      if (reply !== null) throw this.#error(reply.found, reply);
      // All are being spared.
      await sleep(this.#clock, AGAIN_MS, within.signal);
    }
    throw this.#error('no time was left to ask');
  }

  #asking(asked: PictureAsked, policy: AskPolicy, within: Deadline): Asking<ImageMember, FoundAt> {
    const { random = Math.random } = this.options;
    let last: FoundAt | null = null;
    const ask = async (member: ImageMember, attempt: Deadline): Promise<Tried<FoundAt>> => {
      let tried = await this.#attempt(member, asked, attempt);
      while (tried.refusedField !== undefined && this.#leavesOut(tried.refusedField)) {
        tried = await this.#attempt(member, asked, attempt);
      }
      if (tried.reply.kind === 'none' && tried.next === 'busy') {
        this.#absence.goesOn(`${member.url}: ${tried.reply.found}`);
      } else if (tried.next === 'done') this.#absence.isOver();
      // An attempt that the end of the time cut short says less than the one before it.
      if (within.over && last !== null && tried.next !== 'done') return { ...tried, reply: last };
      last = { ...tried.reply, url: member.url };
      return { ...tried, reply: last };
    };
    return { members: this.#members, policy, clock: this.#clock, random, within, ask };
  }

  async #attempt(
    { client }: ImageMember,
    asked: PictureAsked,
    attempt: Deadline,
  ): Promise<ReturnType<typeof meaningOf>> {
    const { timeout_s } = this.options.settings;
    try {
      const body: unknown = await this.#request(client, asked, attempt.signal);
      const picture = await readPicture(body, this.size);
      if (typeof picture !== 'string') this.#hasDrawn = true;
      return meaningOf(picture, this.#hasDrawn);
    } catch (error) {
      if (attempt.over) return meaningOf(`no answer within ${timeout_s} s`, this.#hasDrawn);
      return meaningOf(error as Error, this.#hasDrawn);
    }
  }

  #request(client: OpenAI, { prompt, seed, source }: PictureAsked, signal: AbortSignal): Promise<unknown> {
    const { settings } = this.options;
    const { served_model: model, size, negative_prompt, num_inference_steps, guidance_scale, extra } = settings;
    const given = { negative_prompt, num_inference_steps, guidance_scale };
    const fields = {
      model,
      prompt,
      n: 1,
      size: size as '1024x1024',
      ...Object.fromEntries(Object.entries(given).filter(([, value]) => value !== null)),
      ...(this.#leftOut.has('response_format') ? {} : { response_format: 'b64_json' as const }),
      ...(this.#leftOut.has('seed') ? {} : { seed }),
      ...extra,
    };
    if (source === undefined) return client.images.generate(fields, { signal });
    const image = new File([source], 'source.png', { type: 'image/png' });
    return client.images.edit({ ...fields, image }, { signal });
  }

  /** Whether a field that a server refused is left out from now on, which it was not before. */
  #leavesOut(field: string): boolean {
    const known = DISPENSABLE.find((one) => one === field);
    if (known === undefined || this.#leftOut.has(known)) return false;
    this.#leftOut.add(known);
    this.options.onNote?.(
      known === 'seed'
        ? 'the images server takes no seed: the same prompt gives another picture each time it is asked'
        : `the images server does not take ${known}: it is left out`,
    );
    return true;
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
      const { reply } = meaningOf(error as Error, false);
      return reply.kind === 'answered' ? null : `${url}: ${reply.found}`;
    }
  }

  #error(found: string, { url = this.urls.join(', '), next }: { url?: string; next?: string } = {}): EndpointError {
    return new EndpointError(`the images server gives no picture: ${found}`, {
      where: url,
      next:
        next ??
        'Check that it runs and what its log says, then run the same command again: the run goes on from its last checkpoint.',
    });
  }
}

/** A picture that does not compress, in base64, and what goes around it. */
function mostReplyBytes({ width, height }: PictureSize): number {
  return 2 ** 20 + 6 * width * height;
}
