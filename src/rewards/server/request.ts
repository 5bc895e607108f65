/** Parses a request into items: JSON only, and nothing that could run code. */
import type { z } from 'zod';
import { parseJson } from '../../core/http/json.js';
import { badRequest, Refusal } from '../../core/http/refusal.js';
import { requestFields, requestItemSchema, type RequestItem } from './wire.js';

/** The content type of one JSON document a line. */
export const LINES = 'application/x-ndjson';

/** The one item of `POST /score`. Raises Refusal for everything else. The message describes the allowed form. */
export function parseItem(contentType: string | undefined, bytes: Buffer): RequestItem {
  rejectPickle(contentType ?? '', bytes);
  requireType(contentType, 'application/json');
  return readItem(parseJson(bytes));
}

/** Raises Refusal for another content type. */
export function requireType(contentType: string | undefined, allowed: string): void {
  rejectPickle(contentType ?? '');
  const type = (contentType ?? '').split(';', 1)[0].trim().toLowerCase();
  if (type === allowed) return;
  const found = contentType === undefined ? 'is missing' : `'${type}' is not accepted`;
  throw new Refusal('unsupported_media_type', `Content-Type ${found}; allowed: ${allowed}.`);
}

/** One line of a stream: its item, or the reason why it has none. Raises Refusal for a line without a key, which nothing can answer. */
export function parseLine(bytes: Buffer): { readonly key: string; readonly item: RequestItem | Refusal } {
  const value = parseJson(bytes);
  const key = typeof value === 'object' && value !== null && 'key' in value ? value.key : undefined;
  if (typeof key !== 'string') {
    throw badRequest('A line has to be an object with a key: {"key": "0", "prompt": "..."}.');
  }
  try {
    return { key, item: readItem(value) };
  } catch (error) {
    if (error instanceof Refusal) return { key, item: error };
    throw error;
  }
}

/** Content types under which Python programs send pickles. */
const PICKLE_TYPES = /pickle|python|octet-stream/i;

/** A pickle of protocol 2 to 5 begins with the opcode PROTO and the protocol's number. */
function rejectPickle(contentType: string, bytes: Buffer = Buffer.alloc(0)): void {
  const isPickle = bytes.length >= 2 && bytes[0] === 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
  if (!isPickle && !PICKLE_TYPES.test(contentType)) return;
  throw new Refusal(
    'unsupported_media_type',
    'Pickles and raw bytes are never read, because unpickling runs code. Send JSON with base64 images.',
  );
}

function readItem(value: unknown): RequestItem {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw badRequest('The item has to be an object such as {"prompt": "...", "image": "<base64>"}.');
  }
  const parsed = requestItemSchema.safeParse(value);
  if (!parsed.success) throw badRequest(parsed.error.issues.map(describe).join(' '));
  const { prompt, instruction } = parsed.data;
  if ((prompt === undefined) === (instruction === undefined)) {
    const found = prompt === undefined ? 'neither' : 'both';
    throw badRequest(`The item needs a prompt or an instruction (they mean the same); found ${found}.`);
  }
  return parsed.data;
}

function describe(issue: z.core.$ZodIssue): string {
  if (issue.code === 'unrecognized_keys') return `Unknown ${quoted(issue.keys)}; allowed: ${requestFields.join(', ')}.`;
  return `${issue.path.length === 0 ? 'The item' : issue.path.join('.')}: ${issue.message}.`;
}

function quoted(names: readonly string[]): string {
  return names.map((name) => `'${name.slice(0, 100)}'`).join(', ');
}
