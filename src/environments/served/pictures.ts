/**
 * Pictures from servers. Each is requested separately, so that none can be mistaken for another's.
 */
import type { RemoteExchange } from '../../balance/exchange.js';
import type { Deadline } from '../../core/deadline.js';
import type { RgbImage } from '../../core/image.js';
import { Replay, type ReplayOptions } from '../../group/replay.js';
import type { ImageModel, MadePicture } from '../image_model.js';
import type { PictureReply } from './picture.js';

/** A request under the name of its episode: a remote picture is stored under that name and found again at a resume. */
export type NamedRequest<Asked> = Asked & { readonly key: string };

/** Pictures of requests, made by a server now or earlier. */
export interface ServedPictures<Asked> extends Pick<ImageModel, 'keep' | 'close'> {
  /** A picture for each request, in their order; raises as `ImageModel.generate` does. */
  generate(requests: readonly NamedRequest<Asked>[]): Promise<MadePicture[]>;
}

/** A server's answer to one request, under the name of an episode. */
export interface StoredPicture extends RemoteExchange {
  /** Null if the server refused to draw it. */
  readonly picture: RgbImage | null;
  /** The words of its refusal, if it refused. */
  readonly refused: string | null;
  /** The prompt that it says it has drawn instead. */
  readonly revised: string | null;
}

/** `find` also gives undefined if the picture's file is gone. */
export type PictureStore = ReplayOptions<StoredPicture>['store'];

export interface ServerImagesOptions<Asked> extends ReplayOptions<StoredPicture> {
  readonly client: { draw(asked: Asked, within: Deadline): Promise<PictureReply> };
  /** SHA-256 of everything that decides a picture. */
  readonly hash: (asked: Asked) => string;
}

export class ServerImages<Asked extends object> implements ServedPictures<Asked> {
  readonly #replay: Replay<StoredPicture>;

  constructor(private readonly options: ServerImagesOptions<Asked>) {
    this.#replay = new Replay(options);
  }

  /**
   * Draws equal requests once. Raises EndpointError when a server stays away or fails too often, WaitInterrupted when the run is asked to stop meanwhile.
   */
  async generate(requests: readonly NamedRequest<Asked>[]): Promise<MadePicture[]> {
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
    const all = new Array<MadePicture>(requests.length);
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

type Given = Omit<StoredPicture, keyof RemoteExchange>;

function storable(answered: PictureReply): Given {
  const none = { picture: null, revised: null, refused: null };
  return { ...none, ...answered };
}

function madeOf({ picture, refused }: Given): MadePicture {
  if (picture !== null) return { kind: 'made', image: picture };
  return { kind: 'unavailable', reason: 'refused', detail: refused ?? '' };
}
