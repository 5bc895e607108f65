/** JSON that strangers send. A few bytes of it can cost a hundred times as many in memory, so it is looked through before it is parsed. */
import { isUtf8 } from 'node:buffer';
import { badRequest } from './refusal.js';

/** Values in one document: no sensible request has more, and so many cost some megabytes. */
const mostValues = 100_000;
/** No sensible request nests deeper; whoever walks through it may do so by recursion. */
const deepest = 32;

const [quote, backslash, comma, openList, closeList, openObject, closeObject] = [...'"\\,[]{}'].map((character) =>
  character.charCodeAt(0),
);

/** Raises Refusal 400 for what is no JSON in UTF-8, nests too deep, or has too many values. */
export function parseJson(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw badRequest('The body is not UTF-8.');
  refuseCostly(bytes);
  try {
    return JSON.parse(bytes.toString('utf8')) as unknown;
  } catch (cause) {
    throw badRequest(`The body is not JSON: ${cause instanceof Error ? cause.message.slice(0, 200) : 'unreadable'}.`);
  }
}

function refuseCostly(bytes: Buffer): void {
  let depth = 0;
  let values = 1;
  for (let at = 0; at < bytes.length; at++) {
    const byte = bytes[at];
    if (byte === quote) {
      at = endOfString(bytes, at + 1);
    } else if (byte === comma || byte === openList || byte === openObject) {
      if (byte !== comma && ++depth > deepest) throw badRequest(`The body is nested deeper than ${deepest} levels.`);
      if (++values > mostValues) throw badRequest(`The body has more than ${mostValues} values.`);
    } else if (byte === closeList || byte === closeObject) {
      depth--;
    }
  }
}

/** Where the string's closing quote is, or the end of the bytes. */
function endOfString(bytes: Buffer, start: number): number {
  const end = bytes.indexOf(quote, start);
  if (end === -1) return bytes.length;
  // Images have no escapes, and are most of a body.
  if (bytes[end - 1] !== backslash) return end;
  let at = start;
  while (at < bytes.length && bytes[at] !== quote) at += bytes[at] === backslash ? 2 : 1;
  return at;
}
