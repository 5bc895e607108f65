/** Parses a chat request far enough to route it, limit it and hash it; the body itself is passed on as received. */
import { createHash } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { z } from 'zod';
import { must } from '../../core/errors.js';
import { sha256 } from '../../core/image.js';
import { badRequest, Refusal } from '../../http/refusal.js';
import { chatSchema, imagesOf, parseChat, textsOf, type ChatMessage } from '../judge/chat_messages.js';
import { dataUrlContent, isBase64, pixelCount } from '../../core/image_text.js';

const bodySchema = chatSchema.extend({
  temperature: z.number().nullish(),
  seed: z.int().nullish(),
  logprobs: z.boolean().nullish(),
});

/** What is kept of a parsed request: some hundred bytes, while its parsed body takes several times its length. */
export interface ChatBody {
  readonly model: string;
  /** Whether the same request always means the same reply: temperature 0 and a seed, both said in the request. */
  readonly deterministic: boolean;
  readonly wantsLogprobs: boolean;
  /** SHA-256 of each image file in the request, in order. The names raise InternalError where none were wanted. */
  images(): readonly string[];
  /** SHA-256 of each text in the request taken together. */
  promptHash(): string;
  /**
   * SHA-256 over everything that determines the reply: model, texts, images by their hashes, sampling and every other field, whatever
   * their order. Fields that say who asks, not what, are left out.
   */
  key(): string;
}

/** Fields that do not affect the reply. */
const immaterial: ReadonlySet<string> = new Set(['user', 'metadata', 'stream', 'stream_options', 'priority', 'store']);

export interface ReadingOptions {
  readonly maxImages: number;
  readonly maxImagePixels: number;
  /** For which requests to compute key and hashes, which cost as much as everything else. */
  readonly names: 'always' | 'if_deterministic' | 'never';
  /** Aborted when the caller goes away, for whom nothing more is done. */
  readonly caller?: AbortSignal;
}

/**
 * Raises Refusal 400 for what is no chat request, wants streaming, or holds an image that is too large, not base64 or not in the request
 * itself, and for too many of them.
 */
export async function readChatBody(bytes: Buffer, options: ReadingOptions): Promise<ChatBody> {
  refuseGone(options.caller);
  const { json, asked } = parseChat(bytes, bodySchema);
  const { model, messages, temperature, seed, logprobs } = asked;
  const urls = imagesOf(messages);
  if (urls.length > options.maxImages) {
    throw badRequest(`There are ${urls.length} images; at most ${options.maxImages} are taken at once.`, 'messages');
  }
  for (const url of urls) {
    await checkImage(url, options.maxImagePixels);
    // Yields to others: a large image takes as long as many small requests.
    if (url.length > largeText) await setImmediate();
    refuseGone(options.caller);
  }
  const deterministic = temperature === 0 && typeof seed === 'number';
  const wanted = options.names === 'always' || (options.names === 'if_deterministic' && deterministic);
  const names = wanted ? namesOf(json, messages, urls) : null;
  const named = () => must(names, 'the name of a request');
  return {
    model,
    deterministic,
    wantsLogprobs: logprobs === true,
    images: () => named().images,
    promptHash: () => named().prompt,
    key: () => named().key,
  };
}

function refuseGone(caller: AbortSignal | undefined): void {
  if (caller?.aborted === true) throw new Refusal('caller_gone', 'The caller went away.');
}

function namesOf(json: unknown, messages: readonly ChatMessage[], urls: readonly string[]) {
  const hashes = new Map<string, string>();
  for (const url of new Set(urls)) hashes.set(url, sha256(Buffer.from(dataUrlContent(url) ?? '', 'base64')));
  const prompt = createHash('sha256');
  for (const text of messages.flatMap((message) => textsOf(message))) prompt.update(text).update('\n');
  const key = sha256(canonical(json, hashes, 0));
  return {
    images: urls.map((url) => must(hashes.get(url), 'the hash of an image')),
    prompt: prompt.digest('hex'),
    key,
  };
}

const isImageUrl = /^data:image(?:\/[a-z0-9.+-]+)?;base64,/i;
const largeText = 1_000_000;

/** Raises Refusal for anything but an image within the request, and for one with too many pixels. */
async function checkImage(url: string, maxPixels: number): Promise<void> {
  const text = dataUrlContent(url);
  // The content of an address can change between two requests, and an upstream would fetch it on the caller's behalf.
  if (text === null || !isImageUrl.test(url)) {
    throw badRequest('An image has to be in the request itself: data:image/png;base64,...', 'image_url');
  }
  if (!isBase64(text)) {
    throw badRequest('An image is not base64 (A-Z a-z 0-9 + / and padding).', 'image_url');
  }
  const pixels = await pixelCount(text);
  if (pixels === null) throw badRequest('An image cannot be read: its header is that of no known format.', 'image_url');
  if (pixels <= maxPixels) return;
  const found = (pixels / 1e6).toFixed(1);
  throw badRequest(`An image has ${found} megapixels; at most ${maxPixels / 1e6} are allowed.`, 'image_url');
}

/** Longer texts are replaced by their hashes: escaped, they would take several times their length. */
const longestWritten = 65_536;

/** Differs for different texts: a hash is written without quotes. */
function canonicalText(text: string): string {
  // Half a surrogate pair has no bytes of its own in UTF-8.
  return text.length <= longestWritten || /\p{Surrogate}/u.test(text)
    ? JSON.stringify(text)
    : sha256(Buffer.from(text));
}

/** JSON with the fields of every object in order, and the images of `image_url` as their hashes. */
function canonical(value: unknown, hashes: ReadonlyMap<string, string>, depth: number, inImage = false): string {
  if (typeof value === 'string') return canonicalText(inImage ? (hashes.get(value) ?? value) : value);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, hashes, depth + 1)).join(',')}]`;
  const fields = Object.entries(value)
    .filter(([name, field]) => field !== null && !(depth === 0 && immaterial.has(name)))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const coded = fields.map(
    ([name, field]) =>
      `${JSON.stringify(name)}:${canonical(field, hashes, depth + 1, inImage || name === 'image_url')}`,
  );
  return `{${coded.join(',')}}`;
}
