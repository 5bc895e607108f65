/** Parses a request into items: JSON or multipart/form-data, and nothing that could run code. */
import type { z } from 'zod';
import { parseJson } from '../../core/http/json.js';
import { Refusal } from '../../core/http/refusal.js';
import { requestFields, requestItemSchema, type RequestItem } from './wire.js';

export interface ScoreRequest {
  readonly items: readonly RequestItem[];
  /** Whether the item was at the top level, so that its reply is too. */
  readonly single: boolean;
}

/** Raises Refusal for everything that is not a request to score; the message says what is allowed. */
export async function parseScoreRequest(
  contentType: string | undefined,
  bytes: Buffer,
  maxItems: number,
): Promise<ScoreRequest> {
  refusePickle(contentType ?? '', bytes);
  const type = (contentType ?? '').split(';', 1)[0].trim().toLowerCase();
  const parse = Object.hasOwn(parsers, type) ? parsers[type] : undefined;
  if (parse === undefined) {
    throw new Refusal(
      'unsupported_media_type',
      `Content-Type ${contentType === undefined ? 'is missing' : `'${type}' is not accepted`}; allowed: ${Object.keys(parsers).join(', ')}.`,
    );
  }
  return readItems(await parse(bytes, contentType ?? '', maxItems), maxItems);
}

/** Content types under which Python programs send pickles. */
const pickleTypes = /pickle|python|octet-stream/i;

/** A pickle of protocol 2 to 5 begins with the opcode PROTO and the protocol's number. */
function refusePickle(contentType: string, bytes: Buffer): void {
  const begins = bytes.length >= 2 && bytes[0] === 0x80 && bytes[1] >= 2 && bytes[1] <= 5;
  if (!begins && !pickleTypes.test(contentType)) return;
  throw new Refusal(
    'unsupported_media_type',
    'Pickles and raw bytes are never read, since unpickling runs what it is sent; send JSON with base64 images, or multipart/form-data.',
  );
}

/** The content of a body, before its fields are checked. */
type Parser = (bytes: Buffer, contentType: string, maxItems: number) => unknown;

const parsers: Readonly<Record<string, Parser>> = {
  'application/json': (bytes) => parseJson(bytes),
  'multipart/form-data': async (bytes, contentType, maxItems) => {
    refuseManyParts(bytes, contentType, maxItems * requestFields.length);
    let form: FormData;
    try {
      form = await new Response(new Uint8Array(bytes), { headers: { 'content-type': contentType } }).formData();
    } catch {
      throw new Refusal('bad_request', 'The body is not the multipart/form-data that its Content-Type announces.');
    }
    return readForm(form);
  },
};

/** Refuses many parts: a part of a few bytes takes a hundred times as much memory once parsed. */
function refuseManyParts(bytes: Buffer, contentType: string, most: number): void {
  const [, quoted, plain] = /boundary=(?:"([^"]+)"|([^;\s]+))/i.exec(contentType) ?? [];
  const boundary = `--${quoted ?? plain ?? ''}`;
  // The last one stands behind the last part.
  let left = most + 1;
  for (let at = bytes.indexOf(boundary); at !== -1; at = bytes.indexOf(boundary, at + boundary.length)) {
    if (left-- === 0) throw new Refusal('too_large', `The form has more than ${most} parts.`);
  }
}

/**
 * One item, or several: a field that is repeated has one value for each item, in their order. A field that only some items have
 * cannot be said in this form, because nothing would tell which items they are.
 */
async function readForm(form: FormData): Promise<unknown> {
  const fields = new Map<string, unknown[]>();
  for (const [name, value] of form) {
    const values = fields.get(name) ?? [];
    fields.set(name, values);
    values.push(typeof value === 'string' ? formValue(name, value) : await base64(value));
  }
  const counts = new Set([...fields.values()].map((values) => values.length));
  const [count = 0] = counts;
  if (counts.size > 1) {
    const found = [...fields].map(([name, values]) => `${name} ${values.length}`).join(', ');
    throw new Refusal('bad_request', `Every field of a form has to be there once for each item; found: ${found}.`);
  }
  const items = Array.from({ length: count }, (_, index) =>
    Object.fromEntries([...fields].map(([name, values]) => [name, values[index]])),
  );
  return count === 1 ? items[0] : { items };
}

/** Form fields are always text. */
function formValue(name: string, value: string): unknown {
  if (name === 'finished' && (value === 'true' || value === 'false')) return value === 'true';
  return value;
}

async function base64(file: Blob): Promise<string> {
  return Buffer.from(await file.arrayBuffer()).toString('base64');
}

function readItems(body: unknown, maxItems: number): ScoreRequest {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new Refusal(
      'bad_request',
      'The body has to be an object: {"items": [...]}, or one item such as {"prompt": "...", "image": "<base64>"}.',
    );
  }
  if (!('items' in body)) return { items: [readItem(body, '')], single: true };
  const others = Object.keys(body).filter((name) => name !== 'items');
  if (others.length > 0) throw new Refusal('bad_request', `Unknown ${quoted(others)} beside items; allowed: items.`);
  const items: unknown = body.items;
  if (!Array.isArray(items) || items.length === 0) {
    throw new Refusal('bad_request', 'items has to be a list with at least one item.');
  }
  if (items.length > maxItems) {
    throw new Refusal('too_large', `There are ${items.length} items; at most ${maxItems} are taken at once.`);
  }
  return { items: items.map((item, index) => readItem(item, `items[${index}]`)), single: false };
}

/** @param place where the item stands; empty for the top. */
function readItem(value: unknown, place: string): RequestItem {
  const parsed = requestItemSchema.safeParse(value);
  if (!parsed.success) {
    throw new Refusal('bad_request', parsed.error.issues.map((issue) => describe(issue, place)).join(' '));
  }
  const { prompt, instruction } = parsed.data;
  if ((prompt === undefined) === (instruction === undefined)) {
    const found = prompt === undefined ? 'neither' : 'both';
    throw new Refusal(
      'bad_request',
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
