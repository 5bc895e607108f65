/** What a reply of the images API holds: one picture, or what is wrong with it. */
import { EditrlError } from '../../core/errors.js';
import { decodeImage, type RgbImage } from '../../core/image.js';
import { base64Bytes, pixelCount } from '../../core/image_text.js';
import { excerpt } from '../../rewards/judge/parse.js';
import type { PictureSize } from '../../schema/images_api.js';

/** A picture as a server made it. */
export interface ServedPicture {
  readonly picture: RgbImage;
  /** The prompt that it says it has drawn in place of the one that it was given; null where it says nothing of the kind. */
  readonly revised: string | null;
}

/** What a server makes of a request: a picture, or its refusal of the prompt, in its words. */
export type Answered = ServedPicture | { readonly refused: string };

/** The picture of a whole reply, or what was found in its place, in words. */
export async function readPicture(body: unknown, size: PictureSize): Promise<ServedPicture | string> {
  if (typeof body === 'string') return `it answered with text instead of a picture: ${excerpt(body)}`;
  const data = field(body, 'data');
  if (!Array.isArray(data)) return `it answered without data: ${excerpt(JSON.stringify(body) ?? 'nothing')}`;
  if (data.length !== 1) {
    return `it answered with ${data.length === 0 ? 'no picture' : `${data.length} pictures`}; one was asked for`;
  }
  const [entry] = data as readonly unknown[];
  const text = field(entry, 'b64_json');
  if (typeof text !== 'string' || text === '') {
    return typeof field(entry, 'url') === 'string'
      ? "it answered with a picture's address (url), and not with the picture (b64_json), which was asked for"
      : 'it answered with no picture';
  }
  const picture = await decoded(text, size);
  if (typeof picture === 'string') return picture;
  const revised = field(entry, 'revised_prompt');
  return { picture, revised: typeof revised === 'string' && revised !== '' ? revised : null };
}

/** Looks at the size in the header first, so that a few kilobytes never become gigabytes of pixels. */
async function decoded(text: string, { width, height }: PictureSize): Promise<RgbImage | string> {
  const bytes = base64Bytes(text);
  if (bytes === null) return 'it answered with a picture that is no base64';
  const pixels = await pixelCount(text);
  if (pixels !== null && pixels > width * height) {
    return `it answered with a picture of ${pixels} pixels; ${width}x${height} were asked for`;
  }
  try {
    const picture = await decodeImage(bytes, 'the picture', width * height);
    if (picture.width === width && picture.height === height) return picture;
    return `it answered with a picture of ${picture.width}x${picture.height} pixels; ${width}x${height} were asked for`;
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    return `it answered with what is no picture: ${error.message}`;
  }
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}
