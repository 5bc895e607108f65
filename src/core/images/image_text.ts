/** Images as text: base64, data URLs, and the size of an image without decoding it. */

const beforeBase64 = /^data:[^,]*;base64$/i;

/** The base64 content of a data URL. Null for any other text. */
export function dataUrlContent(url: string): string | null {
  const comma = url.indexOf(',');
  return comma >= 0 && beforeBase64.test(url.slice(0, comma)) ? url.slice(comma + 1) : null;
}

/**
 * The bytes of canonical base64 text (RFC 4648, section 4, with padding), else null. Two texts must never stand for the same bytes, because
 * other readers may interpret one of them differently.
 */
export function base64Bytes(text: string): Buffer | null {
  return isBase64(text) ? Buffer.from(text, 'base64') : null;
}

/** Scratch memory for checking whether a text can be decoded. Allocating megabytes for each check would burden the garbage collector. */
const piece = Buffer.alloc(3 * 2 ** 14);
const pieceChars = (piece.length / 3) * 4;

/** Whether `base64Bytes` accepts a text, without memory for its bytes. */
export function isBase64(text: string): boolean {
  // Decoding skips invalid characters, which shortens the result. It accepts URL-safe letters and non-ASCII characters, which are checked
  // here.
  if (text.includes('-') || text.includes('_') || Buffer.byteLength(text) !== text.length) return false;
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  let bytes = 0;
  for (let at = 0; at < text.length; at += pieceChars) bytes += piece.write(text.slice(at, at + pieceChars), 'base64');
  if (bytes !== (text.length / 4) * 3 - padding) return false;
  // The unused bits of the last character must be 0.
  return padding === 0 || Buffer.from(text.slice(-4), 'base64').toString('base64') === text.slice(-4);
}

/** A PNG's size is in its first 24 bytes. */
const pngHeadChars = 32;
const pngSignature = '89504e470d0a1a0a';

/** Width times height of a base64-coded PNG, JPEG, WebP or GIF by its header. Null if it cannot be read. */
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
    return null; // No judge can read this.
  }
}
