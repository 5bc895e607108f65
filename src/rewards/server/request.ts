/** Parses a request into items: JSON only, and nothing that could run code. */
import type { z } from 'zod';
import { parseJson } from '../../core/http/json.js';
import { badRequest, Refusal } from '../../core/http/refusal.js';
import { requestFields, requestItemSchema, type RequestItem } from './wire.js';

export interface ScoreRequest {
  readonly items: readonly RequestItem[];
  /** Whether the item was at the top level, so that its reply is too. */
  readonly single: boolean;
}

/** Raises Refusal for everything that is not a request to score. The message describes the allowed form. */
export function parseScoreRequest(contentType: string | undefined, bytes: Buffer, maxItems: number): ScoreRequest {
  rejectPickle(contentType ?? '', bytes);
  const type = (contentType ?? '').split(';', 1)[0].trim().toLowerCase();
  if (type !== 'application/json') {
    const found = contentType === undefined ? 'is missing' : `'${type}' is not accepted`;
    throw new Refusal('unsupported_media_type', `Content-Type ${found}; allowed: application/json.`);
  }
  return readItems(parseJson(bytes), maxItems);
}

/** Content types under which Python programs send pickles. */
const PICKLE_TYPES = /pickle|python|octet-stream/i;

/** A pickle of protocol 2 to 5 begins with the opcode PROTO and the protocol's number. */
function rejectPickle(contentType: string, bytes: Buffer): void {
  const isPickle = bytes.length >= 2 && bytes[0] === 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
  if (!isPickle && !PICKLE_TYPES.test(contentType)) return;
  throw new Refusal(
    'unsupported_media_type',
    'Pickles and raw bytes are never read, because unpickling runs code. Send JSON with base64 images.',
  );
}

function readItems(body: unknown, maxItems: number): ScoreRequest {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw badRequest(
      'The body has to be an object: {"items": [...]}, or one item such as {"prompt": "...", "image": "<base64>"}.',
    );
  }
  if (!('items' in body)) return { items: [readItem(body, '')], single: true };
  const others = Object.keys(body).filter((name) => name !== 'items');
  if (others.length > 0) throw badRequest(`Unknown ${quoted(others)} beside items; allowed: items.`);
  const items: unknown = body.items;
  if (!Array.isArray(items) || items.length === 0) {
    throw badRequest('items has to be a list with at least one item.');
  }
  if (items.length > maxItems) {
    throw new Refusal('too_large', `The request has ${items.length} items; at most ${maxItems} are allowed.`);
  }
  return { items: items.map((item, index) => readItem(item, `items[${index}]`)), single: false };
}

/** @param place the item's place in the body. Empty for the top level. */
function readItem(value: unknown, place: string): RequestItem {
  const parsed = requestItemSchema.safeParse(value);
  if (!parsed.success) throw badRequest(parsed.error.issues.map((issue) => describe(issue, place)).join(' '));
  const { prompt, instruction } = parsed.data;
  if ((prompt === undefined) === (instruction === undefined)) {
    const found = prompt === undefined ? 'neither' : 'both';
    throw badRequest(
      `${place === '' ? 'The item' : place} needs a prompt or an instruction (they mean the same); found ${found}.`,
    );
  }
  return parsed.data;
}

function describe(issue: z.core.$ZodIssue, place: string): string {
  if (issue.code === 'unrecognized_keys') {
    const where = place === '' ? '' : ` in ${place}`;
    return `Unknown ${quoted(issue.keys)}${where}; allowed: ${requestFields.join(', ')}${place === '' ? ', items' : ''}.`;
  }
  const path = [place, ...issue.path.map(String)].filter((name) => name !== '').join('.');
  return `${path === '' ? 'The item' : path}: ${issue.message}.`;
}

function quoted(names: readonly string[]): string {
  return names.map((name) => `'${name.slice(0, 100)}'`).join(', ');
}
