/**
 * Pictures' places in a prompt. A conversation holds them as parts `{type: 'image'}` and `{type: 'video'}`, for each of which the model's chat
 * template writes one placeholder token between its marks; a picture of n tokens has n of them in the ids that the model reads.
 */
import { DataError } from '../../core/errors.js';
import type { MarkedPictureTokens, PatchSizes, PictureTokens } from '../../nets/vision/config.js';
import { tokensOf, type Picture } from './picture.js';

/**
 * Writes a place for each of so many images, between the marks of its own, where `ids` have one for a clip: what a chat template writes for as many
 * images. Raises DataError, naming `where`, where the clip's place does not stand between marks.
 */
export function withStills(
  ids: readonly number[],
  stills: number,
  {
    image_token_id: image,
    video_token_id: video,
    vision_start_token_id: start,
    vision_end_token_id: end,
  }: MarkedPictureTokens,
  where: string,
): number[] {
  const out: number[] = [];
  for (let i = 0; i < ids.length; i++) {
    if (ids[i] !== video) {
      out.push(ids[i]);
      continue;
    }
    if (ids[i - 1] !== start || ids[i + 1] !== end) {
      throw new DataError('the place of the video does not stand between the marks of a picture', {
        where,
        next: "Use a chat template that writes them, or set data.frames.as to 'video'.",
      });
    }
    out.pop();
    for (let n = 0; n < stills; n++) out.push(start, image, end);
    i += 1;
  }
  return out;
}

/**
 * Writes as many placeholders for each picture as it has tokens. `ids` hold one for each, in the order of `pictures`. Raises DataError, naming
 * `where`, where ids and pictures do not go together.
 */
export function withPictures(
  ids: readonly number[],
  pictures: readonly Picture[],
  tokens: PictureTokens,
  sizes: PatchSizes,
  where: string,
): number[] {
  const kindOf = (id: number): Picture['kind'] | null =>
    id === tokens.image_token_id ? 'image' : id === tokens.video_token_id ? 'video' : null;
  const asked = ids.map(kindOf).filter((kind) => kind !== null);
  const given = pictures.map(({ kind }) => kind);
  if (asked.join() !== given.join()) {
    throw new DataError(
      `the words of the prompt have places for ${counted(asked)}, and it comes with ${counted(given)}`,
      {
        where,
        next: 'Give a conversation as many images and videos as its words have placeholders, in their order.',
      },
    );
  }
  let next = 0;
  return ids.flatMap((id) =>
    kindOf(id) === null ? [id] : Array<number>(tokensOf(pictures[next++].grid, sizes)).fill(id),
  );
}

function counted(kinds: readonly Picture['kind'][]): string {
  return kinds.length === 0 ? 'no pictures' : kinds.join(', ');
}
