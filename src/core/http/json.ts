/** JSON from strangers. A few bytes can cost a hundred times their memory, so the text is scanned before it is parsed. */
import { isAscii, isUtf8 } from 'node:buffer';
import { badRequest } from './refusal.js';

/** Values in one document. No sensible request has more, and this many take some megabytes. */
const MAX_VALUES = 100_000;
/** No sensible request nests deeper, and readers may recurse. */
const MAX_DEPTH = 32;

const [quote, backslash, comma, openList, closeList, openObject, closeObject] = [...'"\\,[]{}'].map((character) =>
  character.charCodeAt(0),
);

/**
 * Raises Refusal 400 for anything that is not JSON in UTF-8, nests too deeply, has too many values, or has more than `maxText` bytes of
 * text in addition to its data URLs.
 */
export function parseJson(bytes: Buffer, maxText = Infinity): unknown {
  if (!isUtf8(bytes)) throw badRequest('The body is not UTF-8.');
  refuseCostly(bytes, maxText);
  try {
    return JSON.parse(bytes.toString('utf8')) as unknown;
  } catch (cause) {
    throw badRequest(`The body is not JSON: ${cause instanceof Error ? cause.message.slice(0, 200) : 'unreadable'}.`);
  }
}

function refuseCostly(bytes: Buffer, maxText: number): void {
  let depth = 0;
  let values = 1;
  let text = 0;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at];
    if (byte === quote) {
      const start = at + 1;
      at = endOfString(bytes, start);
      text += isPlainUrl(bytes.subarray(start, at)) ? 0 : at - start;
      if (text > maxText) {
        throw badRequest(
          `The body has more than ${maxText} bytes of text besides its images (data: URLs in ASCII without backslashes).`,
        );
      }
    } else if (byte === comma || byte === openList || byte === openObject) {
      if (byte !== comma && ++depth > MAX_DEPTH) {
        throw badRequest(`The body is nested deeper than ${MAX_DEPTH} levels.`);
      }
      if (++values > MAX_VALUES) throw badRequest(`The body has more than ${MAX_VALUES} values.`);
    } else if (byte === closeList || byte === closeObject) {
      depth--;
    }
  }
}

/** The index of the string's closing quote, or the end of the bytes. */
function endOfString(bytes: Buffer, start: number): number {
  const end = bytes.indexOf(quote, start);
  if (end === -1) return bytes.length;
  // Images have no escapes, and they are most of a body.
  if (bytes[end - 1] !== backslash) return end;
  let at = start;
  while (at < bytes.length && bytes[at] !== quote) at += bytes[at] === backslash ? 2 : 1;
  return at;
}

const dataUrl = Buffer.from('data:');

/** Whether it is a data URL that costs no more than a copy. */
function isPlainUrl(text: Buffer): boolean {
  return (
    text.length > dataUrl.length &&
    text.compare(dataUrl, 0, dataUrl.length, 0, dataUrl.length) === 0 &&
    isAscii(text) &&
    !text.includes(backslash)
  );
}
