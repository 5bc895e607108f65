/** Names prompts' pictures by what the policy sees of them, for answers that are found again. */
import { createHash } from 'node:crypto';
import type { Picture } from '../../models/pictures/picture.js';
import type { TokenPrompt } from './batch.js';

export class PictureDigests {
  readonly #known = new WeakMap<Picture, string>();

  /** SHA-256 of all that the policy sees of a prompt's pictures; null if there are none. */
  of({ pictures = [] }: Pick<TokenPrompt, 'pictures'>): string | null {
    if (pictures.length === 0) return null;
    const hash = createHash('sha256');
    for (const picture of pictures) {
      const known = this.#known.get(picture) ?? digestOfPicture(picture);
      this.#known.set(picture, known);
      hash.update(known);
    }
    return hash.digest('hex');
  }
}

function digestOfPicture({ kind, frames, grid, secondsPerStep }: Picture): string {
  const hash = createHash('sha256').update(JSON.stringify([kind, grid, secondsPerStep, frames.length]));
  for (const { width, height, data } of frames) hash.update(`${width}x${height} `).update(data);
  return hash.digest('hex');
}
