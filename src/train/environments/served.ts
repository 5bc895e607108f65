/** Images from servers: replies, requests and stored images. */
import type { AttemptResult } from '../../core/remote/remote.js';
import type { RemoteExchange } from '../../core/remote/exchange.js';
import type { OutageListener } from '../../core/remote/remote.js';
import { type AwaitedMember, AwaitedRemote, type ReplyOutcome, RUN_AGAIN } from '../../core/remote/remote.js';
import type { Clock, Deadline } from '../../core/clock.js';
import { EditrlError, EndpointError } from '../../core/errors.js';
import { decodeImage, type RgbImage } from '../../core/images/image.js';
import { pixelCount } from '../../core/images/image_text.js';
import { Replay, type ReplayOptions } from '../../core/group/replay.js';
import type { StatusTable } from '../../core/http/status.js';
import type { QueriedServersSettings, ImageSize } from '../../config/schema/images_api.js';
import type { ImageModel, MadeImage } from './image_model.js';

/** An image from a server. */
export interface ServedImage {
  readonly image: RgbImage;
  /** The revised prompt that the server reports to have used. Null if it reports none. */
  readonly revised: string | null;
}

/** A server's answer: an image, or its refusal in its own words. */
export type ImageReply = ServedImage | { readonly refused: string };

/**
 * The image in a file, or a description of the content instead. Checks the size in the header first, so that a few
 * kilobytes never become gigabytes of pixels.
 */
export async function imageIn(bytes: Buffer, { width, height }: ImageSize): Promise<RgbImage | string> {
  const pixels = await pixelCount(bytes.toString('base64'));
  if (pixels !== null && pixels > width * height) {
    return `it returned an image of ${pixels} pixels; requested: ${width}x${height}`;
  }
  try {
    const image = await decodeImage(bytes, 'the image', width * height);
    if (image.width === width && image.height === height) return image;
    return `it returned an image of ${image.width}x${image.height} pixels; requested: ${width}x${height}`;
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return `it returned an invalid image: ${error.message}`;
  }
}

/** Bytes of the largest reply with an image: an incompressible one in base64, and the surrounding JSON. */
export function maxReplyBytes({ width, height }: ImageSize): number {
  return 2 ** 20 + 6 * width * height;
}

/** An image without content. */
export function blankImage({ width, height }: ImageSize): RgbImage {
  return { width, height, data: new Uint8Array(3 * width * height).fill(128) };
}

/** Number of failures after which a server that has never generated an image is considered the wrong one. */
export const FIRST_ATTEMPTS = 5;

/** The meanings of statuses without an image. */
export const IMAGE_STATUSES: StatusTable<'busy' | 'away' | 'failed' | 'refused'> = {
  408: 'failed',
  429: 'busy',
  502: 'away',
  503: 'away',
  504: 'away',
  '5xx': 'failed',
  rest: 'refused',
};

export interface ImageRemoteOptions<M extends AwaitedMember, Requested> extends OutageListener {
  /** The server's name in messages. */
  readonly name: string;
  readonly members: readonly M[];
  readonly settings: Pick<QueriedServersSettings, 'timeout_s' | 'max_attempts'>;
  readonly clock?: Clock | undefined;
  /** Uniform in [0, 1), for back-off jitter only. */
  readonly random?: (() => number) | undefined;
  readonly attempt: (
    member: M,
    imageRequest: Requested,
    within: Deadline,
  ) => Promise<AttemptResult<ReplyOutcome<ImageReply>>>;
}

export function imageRemote<M extends AwaitedMember, Requested>(
  options: ImageRemoteOptions<M, Requested>,
): AwaitedRemote<M, Requested, ImageReply> {
  const { name, settings } = options;
  return new AwaitedRemote({
    ...options,
    policy: {
      maxAttempts: settings.max_attempts,
      attemptTimeoutMs: settings.timeout_s * 1000,
      retryAfterCapMs: 60_000,
    },
    error: (found, { url: where, next = RUN_AGAIN }) =>
      new EndpointError(`the ${name} returned no image: ${found}`, { where, next }),
  });
}

/** A request with its episode's key. Remote images are stored under it and reused by a resumed run. */
export type NamedRequest<Requested> = Requested & { readonly key: string };

/** Images of requests, from a server now or from the store. */
export interface ServedImages<Requested> extends Pick<ImageModel, 'keep' | 'close'> {
  /** An image for each request, in order. Raises the errors of `ImageModel.generate`. */
  generate(requests: readonly NamedRequest<Requested>[]): Promise<MadeImage[]>;
}

/** A server's answer to one request, with the episode's key. */
export interface StoredImage extends RemoteExchange {
  /** Null if the server refused the request. */
  readonly image: RgbImage | null;
  /** The text of its refusal, if it refused. */
  readonly refused: string | null;
  /** The revised prompt that it reports. */
  readonly revised: string | null;
}

/** `find` also returns undefined if the image's file no longer exists. */
export type ImageStore = ReplayOptions<StoredImage>['store'];

export interface ServerImagesOptions<Requested> extends ReplayOptions<StoredImage> {
  readonly client: { draw(imageRequest: Requested, within: Deadline): Promise<ImageReply> };
  /** SHA-256 of everything that determines an image. */
  readonly hash: (imageRequest: Requested) => string;
}

export class ServerImages<Requested extends object> implements ServedImages<Requested> {
  readonly #replay: Replay<StoredImage>;

  constructor(private readonly options: ServerImagesOptions<Requested>) {
    this.#replay = new Replay(options);
  }

  /**
   * Generates images, equal requests once. Raises EndpointError when a server stays unreachable or fails too often,
   * WaitInterrupted when the run is asked to stop meanwhile.
   */
  async generate(requests: readonly NamedRequest<Requested>[]): Promise<MadeImage[]> {
    const { client, hash } = this.options;
    const alike = new Map<string, number[]>();
    for (const [i, request] of requests.entries()) {
      const requestHash = hash(request);
      const places = alike.get(requestHash);
      if (places === undefined) alike.set(requestHash, [i]);
      else places.push(i);
    }
    const groups = [...alike];
    const given = await this.#replay.all(
      groups.map(([requestHash, places]) => (over: AbortSignal) => {
        const keys = places.map((i) => requests[i].key);
        const draw = async (within: Deadline) => storable(await client.draw(requests[places[0]], within));
        return this.#replay.answers(keys, requestHash, draw, over);
      }),
    );
    const all = new Array<MadeImage>(requests.length);
    for (const [g, [, places]] of groups.entries()) for (const [j, i] of places.entries()) all[i] = madeOf(given[g][j]);
    return all;
  }

  keep(): Promise<void> {
    return this.#replay.keep();
  }

  close(): Promise<void> {
    return this.#replay.close();
  }
}

type Given = Omit<StoredImage, keyof RemoteExchange>;

function storable(answered: ImageReply): Given {
  const none = { image: null, revised: null, refused: null };
  return { ...none, ...answered };
}

function madeOf({ image, refused }: Given): MadeImage {
  if (image !== null) return { kind: 'made', image: image };
  return { kind: 'unavailable', reason: 'refused', detail: refused ?? '' };
}
