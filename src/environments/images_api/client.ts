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
import { encodePng } from '../../core/image.js';
import { checkedKey, noKey } from '../../http/key.js';
import { createHttpPool, type HttpPool } from '../../http/pool.js';
import { resolveEndpoints } from '../../rewards/judge/endpoints.js';
import { createClient } from '../../rewards/judge/transport.js';
import { pictureSize, type ImagesApiSettings, type PictureSize } from '../../schema/images_api.js';
import { meaningOf, refusal, type Found, type Meaning } from './meaning.js';
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

/** What any server draws that draws at all. */
const PLAIN: PictureAsked = { prompt: 'a red square', seed: 0 };

/** With the server that it was found at. */
type FoundAt = Found & { readonly url: string };

class ImageMember extends Member {
  readonly client: OpenAI;
  /** The dispensable fields that it has drawn with: an error in which their names stand is about something else. */
  readonly takes = new Set<Dispensable>();

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
    const answered = await this.#ask(PLAIN, within, FIRST_ATTEMPTS);
    if ('refused' in answered) throw this.#error(`it refuses '${PLAIN.prompt}': ${answered.refused}`);
  }

  /** It is known to have drawn what these settings ask for: what it refuses from now on may be the prompt. */
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
      const tried = await this.#explained(member, asked, attempt);
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

  /**
   * Asks once. What a server refuses without saying why is its prompt where it still draws another one, and settings that have come to be
   * refused, an account that is used up among them, where it does not: these say nothing of a prompt.
   */
  async #explained(member: ImageMember, asked: PictureAsked, attempt: Deadline): Promise<Meaning> {
    const tried = await this.#attempt(member, asked, attempt);
    if (tried.unexplained !== true || tried.reply.kind !== 'wrong' || !this.#hasDrawn) return tried;
    const source = asked.source === undefined ? {} : { source: await blank(this.size) };
    const plain = await this.#attempt(member, { ...PLAIN, ...source }, attempt);
    return plain.reply.kind === 'answered' ? refusal(tried.reply.found) : plain;
  }

  /** Sends a request, and again without the fields that the server refuses of it. */
  async #attempt(member: ImageMember, asked: PictureAsked, attempt: Deadline): Promise<Meaning> {
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
    asked: PictureAsked,
    attempt: Deadline,
    sent: readonly Dispensable[],
  ): Promise<Meaning> {
    const { timeout_s } = this.options.settings;
    try {
      const body: unknown = await this.#request(client, asked, attempt.signal, sent);
      const picture = await readPicture(body, this.size);
      if (typeof picture !== 'string') {
        this.#hasDrawn = true;
        for (const field of sent) takes.add(field);
      }
      return meaningOf(picture);
    } catch (error) {
      // What is called off says nothing of how long it took.
      const calledOff = attempt.remainingMs() > 0;
      if (attempt.over) return meaningOf(calledOff ? 'it was called off' : `no answer within ${timeout_s} s`);
      return meaningOf(error as Error);
    }
  }

  #request(
    client: OpenAI,
    { prompt, seed, source }: PictureAsked,
    signal: AbortSignal,
    sent: readonly Dispensable[],
  ): Promise<unknown> {
    const { settings } = this.options;
    const { served_model: model, size, negative_prompt, num_inference_steps, guidance_scale, extra } = settings;
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

  /** From now on; requests that were sent before may hold it yet. */
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

  #error(found: string, { url = this.urls.join(', '), next }: { url?: string; next?: string } = {}): EndpointError {
    return new EndpointError(`the images server gives no picture: ${found}`, {
      where: url,
      next:
        next ??
        'Check that it runs and what its log says, then run the same command again: the run goes on from its last checkpoint.',
    });
  }
}

/** A picture that shows nothing, as a PNG file. */
function blank({ width, height }: PictureSize): Promise<Uint8Array> {
  return encodePng({ width, height, data: new Uint8Array(3 * width * height).fill(128) });
}

/** A picture that does not compress, in base64, and what goes around it. */
function mostReplyBytes({ width, height }: PictureSize): number {
  return 2 ** 20 + 6 * width * height;
}
