/** Images as texts: base64, data URLs, and the size of one without decoding it: a few kilobytes can stand for gigabytes of pixels. */

const beforeBase64 = /^data:[^,]*;base64$/i;

/** The content of a data URL, still in base64; null for any other text. */
export function dataUrlContent(url: string): string | null {
  const comma = url.indexOf(',');
  return comma >= 0 && beforeBase64.test(url.slice(0, comma)) ? url.slice(comma + 1) : null;
}

/**
 * The bytes of a text that is base64 as it is written in one way only (RFC 4648, section 4, with its padding), else null: two texts must
 * never stand for the same bytes, since one of them may mean something else, or nothing, to somebody else who reads it.
 */
export function base64Bytes(text: string): Buffer | null {
  return isBase64(text) ? Buffer.from(text, 'base64') : null;
}

/** Where a text is decoded to see whether it can be: whatever were made of megabytes for that would have to be collected again. */
const piece = Buffer.alloc(3 * 2 ** 14);
const pieceChars = (piece.length / 3) * 4;

/** Whether `base64Bytes` takes a text, without memory for its bytes. */
export function isBase64(text: string): boolean {
  // Decoding passes over what does not belong there, which then lacks in its length, but for the letters of URLs and what is not ASCII.
  if (text.includes('-') || text.includes('_') || Buffer.byteLength(text) !== text.length) return false;
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  let bytes = 0;
  for (let at = 0; at < text.length; at += pieceChars) bytes += piece.write(text.slice(at, at + pieceChars), 'base64');
  if (bytes !== (text.length / 4) * 3 - padding) return false;
  // The bits that the last letter has too many of are 0.
  return padding === 0 || Buffer.from(text.slice(-4), 'base64').toString('base64') === text.slice(-4);
}

/** A PNG's size stands in its first 24 bytes. */
const pngHeadChars = 32;
const pngSignature = '89504e470d0a1a0a';

/** Width times height of a base64-coded PNG, JPEG, WebP or GIF by its header; null where it has none that can be read. */
export async function pixelCount(base64: string): Promise<number | null> {
  const head = Buffer.from(base64.slice(0, pngHeadChars), 'base64');
  if (head.length >= 24 && head.toString('hex', 0, 8) === pngSignature) {
    const pixels = head.readUInt32BE(16) * head.readUInt32BE(20);
    return pixels === 0 ? null : pixels;
  }
  const { default: sharp } = await import('sharp');
  try {
    const { width, height } = await sharp(Buffer.from(base64, 'base64'), { limitInputPixels: false }).metadata();
    return width * height;
  } catch {
    return null; // Whatever it is, no judge can read it.
  }
}
