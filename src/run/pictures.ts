/**
 * `pictures.jsonl`: what picture servers gave a run, stored before it is used and found again when the run resumes. A line names a picture by its
 * file in `media/`.
 */
import type { RemoteExchange } from '../balance/exchange.js';
import { decodeImage, encodePng, sha256, type RgbImage } from '../core/image.js';
import { readPlain } from '../core/plain_file.js';
import type { PictureStore, StoredPicture } from '../environments/served/pictures.js';
import { lineForm, type Exchanges } from './exchanges.js';
import { storePng } from './media.js';
import type { RunPaths } from './paths.js';

/** A line, as it is sent between ranks. */
export interface NamedPicture extends RemoteExchange, Pick<StoredPicture, 'refused' | 'revised'> {
  /** SHA-256 of the PNG file; null if the server refused to draw it. */
  readonly picture: string | null;
}

export const pictureForm = lineForm<NamedPicture>({
  key: 'key',
  requestHash: 'request_hash',
  picture: 'picture',
  refused: 'refused',
  revised: 'revised_prompt',
});

/** The pictures of a run: files, which any rank may write, and the lines that name them. */
export class RunPictures implements PictureStore {
  constructor(
    private readonly paths: RunPaths,
    private readonly lines: Exchanges<NamedPicture>,
  ) {}

  async find(key: string, requestHash: string): Promise<StoredPicture | undefined> {
    const line = this.lines.find(key, requestHash);
    if (line === undefined) return undefined;
    if (line.picture === null) return { ...line, picture: null };
    const picture = await this.#read(line.picture);
    return picture === null ? undefined : { ...line, picture };
  }

  async put({ picture, ...line }: StoredPicture): Promise<void> {
    const name = picture === null ? null : storePng(this.paths, await encodePng(picture));
    this.lines.put({ ...line, picture: name });
  }

  /** Null if the file is gone, or its content does not match its name. */
  async #read(name: string): Promise<RgbImage | null> {
    const path = this.paths.media(name);
    const bytes = readPlain(path);
    if (bytes === null) return null;
    return sha256(bytes) === name ? decodeImage(bytes, path) : null;
  }
}
