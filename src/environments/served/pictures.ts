/**
 * Pictures of servers. Each is asked for by itself, so that none belongs to another request.
 */
import type { Exchanged } from '../../balance/exchange.js';
import type { Deadline } from '../../core/deadline.js';
import type { RgbImage } from '../../core/image.js';
import { Replay, type ReplayOptions } from '../../group/replay.js';
import type { ImageModel, MadePicture } from '../image_model.js';
import type { Answered } from './picture.js';

/** What is asked for, under the name of its episode: what comes from elsewhere is stored under it and found again at a resume. */
export type Named<Asked> = Asked & { readonly key: string };

/** Pictures of requests, whether a server makes them or made them once. */
export interface ServedPictures<Asked> extends Pick<ImageModel, 'keep' | 'close'> {
  /** A picture for each request, in their order; raises as `ImageModel.generate`. */
  generate(requests: readonly Named<Asked>[]): Promise<MadePicture[]>;
}

/** What a server gave for one request, under the name of an episode. */
export interface StoredPicture extends Exchanged {
  /** Null where the server refused what it was to draw. */
  readonly picture: RgbImage | null;
  /** Its words, where it did. */
  readonly refused: string | null;
  /** The prompt that it says it has drawn instead. */
  readonly revised: string | null;
}

/** `find` gives undefined, too, where the picture's file is gone. */
export type PictureStore = ReplayOptions<StoredPicture>['store'];

export interface ServerImagesOptions<Asked> extends ReplayOptions<StoredPicture> {
  readonly client: { draw(asked: Asked, within: Deadline): Promise<Answered> };
  /** SHA-256 of all that decides a picture. */
  readonly hash: (asked: Asked) => string;
}

export class ServerImages<Asked extends object> implements ServedPictures<Asked> {
  readonly #replay: Replay<StoredPicture>;

  constructor(private readonly options: ServerImagesOptions<Asked>) {
    this.#replay = new Replay(options);
  }

  /** What is asked for twice is drawn once. Raises EndpointError where a server stays away or fails too often, Abandoned where the run is asked to stop meanwhile. */
  async generate(requests: readonly Named<Asked>[]): Promise<MadePicture[]> {
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

type Given = Omit<StoredPicture, keyof Exchanged>;

function storable(answered: Answered): Given {
  const none = { picture: null, revised: null, refused: null };
  return { ...none, ...answered };
}

function madeOf({ picture, refused }: Given): MadePicture {
  if (picture !== null) return { kind: 'made', image: picture };
  return { kind: 'unavailable', reason: 'refused', detail: refused ?? '' };
}
