/**
 * Pictures of servers. Each is asked for by itself, so that none belongs to another request; what the server gave is stored before
 * it is used, and found again for the same request: so a resumed run stays the same, though a server gives no such promise.
 */
import pLimit, { type LimitFunction } from 'p-limit';
import { systemClock, type Clock } from '../../core/clock.js';
import { Deadline } from '../../core/deadline.js';
import { EndpointError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import { together } from '../../core/together.js';
import { Abandoned } from '../../group/lead.js';
import type { ImageModel, MadePicture } from '../image_model.js';
import type { Answered } from './picture.js';

/** What is asked for, under the name of its episode: what comes from elsewhere is stored under it and found again at a resume. */
export type Named<Asked> = Asked & { readonly key: string };

/** Pictures of requests, whether a server makes them or made them once. */
export interface ServedPictures<Asked> extends Pick<ImageModel, 'keep' | 'close'> {
  /** A picture for each request, in their order; raises as `ImageModel.generate`. */
  generate(requests: readonly Named<Asked>[]): Promise<MadePicture[]>;
}

/** What a server gave for one request. */
export interface StoredPicture {
  /** The name of the episode. */
  readonly key: string;
  /** SHA-256 of all that decides the picture. */
  readonly requestHash: string;
  /** Null where the server refused what it was to draw. */
  readonly picture: RgbImage | null;
  /** Its words, where it did. */
  readonly refused: string | null;
  /** The prompt that it says it has drawn instead. */
  readonly revised: string | null;
}

export interface PictureStore {
  /** Undefined where nothing is stored for the request, or the picture's file is gone. */
  find(key: string, requestHash: string): Promise<StoredPicture | undefined>;
  put(picture: StoredPicture): Promise<void>;
}

export interface ServerImagesOptions<Asked> {
  readonly client: { draw(asked: Asked, within: Deadline): Promise<Answered> };
  /** SHA-256 of all that decides a picture. */
  readonly hash: (asked: Asked) => string;
  readonly store: PictureStore;
  /** Hands this rank's pictures that rank 0 has yet to store to it; every rank calls it. */
  readonly keep: () => Promise<void>;
  /** Pictures under way at once, on this rank. */
  readonly concurrency: number;
  readonly maxWaitMs: number;
  readonly stop: AbortSignal;
  readonly close: () => Promise<void>;
  readonly clock?: Clock;
}

export class ServerImages<Asked extends object> implements ServedPictures<Asked> {
  readonly #slots: LimitFunction;

  constructor(private readonly options: ServerImagesOptions<Asked>) {
    this.#slots = pLimit(options.concurrency);
  }

  /** What is asked for twice is drawn once. Raises EndpointError where a server stays away or fails too often, Abandoned where the run is asked to stop meanwhile. */
  async generate(requests: readonly Named<Asked>[]): Promise<MadePicture[]> {
    const alike = new Map<string, number[]>();
    for (const [i, request] of requests.entries()) {
      const hash = this.options.hash(request);
      const places = alike.get(hash);
      if (places === undefined) alike.set(hash, [i]);
      else places.push(i);
    }
    const groups = [...alike];
    const made = await together(
      groups.map(([hash, places]) => (over: AbortSignal) => {
        const asked = requests[places[0]];
        const keys = places.map((i) => requests[i].key);
        return this.#slots(() => this.#pictures(keys, hash, asked, over));
      }),
      this.options.stop,
    );
    const all = new Array<MadePicture>(requests.length);
    for (const [g, [, places]] of groups.entries()) for (const [j, i] of places.entries()) all[i] = made[g][j];
    return all;
  }

  keep(): Promise<void> {
    return this.options.keep();
  }

  close(): Promise<void> {
    return this.options.close();
  }

  /** Of one request under several names: what is stored under one of them, by a run that was cut off, is so under the others. */
  async #pictures(
    keys: readonly string[],
    requestHash: string,
    asked: Asked,
    over: AbortSignal,
  ): Promise<MadePicture[]> {
    const { client, store } = this.options;
    const stored = await Promise.all(keys.map((key) => store.find(key, requestHash)));
    const given =
      stored.find((one) => one !== undefined) ??
      storable(requestHash, await this.#within(over, (deadline) => client.draw(asked, deadline)));
    return Promise.all(
      keys.map(async (key, i) => {
        const own = stored[i];
        if (own === undefined) await store.put({ ...given, key });
        return madeOf(own ?? given);
      }),
    );
  }

  async #within<T>(over: AbortSignal, work: (deadline: Deadline) => Promise<T>): Promise<T> {
    const { stop, maxWaitMs, clock = systemClock } = this.options;
    const deadline = new Deadline(clock, maxWaitMs, over);
    try {
      return await work(deadline);
    } catch (error) {
      throw stop.aborted && error instanceof EndpointError ? new Abandoned() : error;
    } finally {
      deadline.dispose();
    }
  }
}

function storable(requestHash: string, answered: Answered): Omit<StoredPicture, 'key'> {
  const none = { picture: null, revised: null, refused: null };
  return { ...none, requestHash, ...answered };
}

function madeOf({ picture, refused }: Omit<StoredPicture, 'key'>): MadePicture {
  if (picture !== null) return { kind: 'made', image: picture };
  return { kind: 'unavailable', reason: 'refused', detail: refused ?? '' };
}
