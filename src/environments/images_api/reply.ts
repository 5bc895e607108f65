/** Reads a reply of the images API: one picture, or what is wrong with it. */
import { base64Bytes } from '../../core/image_text.js';
import { excerpt } from '../../rewards/judge/parse.js';
import type { PictureSize } from '../../schema/images_api.js';
import { pictureIn, type ServedPicture } from '../served/picture.js';

/** The picture of a whole reply, or a description of what came instead. */
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
  const bytes = base64Bytes(text);
  if (bytes === null) return 'it answered with a picture that is no base64';
  const picture = await pictureIn(bytes, size);
  if (typeof picture === 'string') return picture;
  const revised = field(entry, 'revised_prompt');
  return { picture, revised: typeof revised === 'string' && revised !== '' ? revised : null };
}

function field(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}
