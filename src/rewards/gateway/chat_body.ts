/** Reads a chat request far enough to route it, to bound it, and to name what it asks; the body itself is passed on as it came. */
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { sha256 } from '../../core/image.js';
import { pixelCount } from './image_header.js';
import { badRequest } from './problem.js';

const partSchema = z.discriminatedUnion(
  'type',
  [
    z.object({ type: z.literal('text'), text: z.string() }),
    z.object({ type: z.literal('image_url'), image_url: z.object({ url: z.string() }) }),
  ],
  { error: 'a part has to be of type text or image_url' },
);

const bodySchema = z.object({
  model: z.string().min(1),
  messages: z
    .array(z.object({ role: z.string(), content: z.union([z.string(), z.array(partSchema), z.null()]).optional() }))
    .min(1, 'at least one message is needed'),
  stream: z.boolean().nullish(),
  temperature: z.number().nullish(),
  seed: z.int().nullish(),
  logprobs: z.boolean().nullish(),
});

export interface ChatBody {
  readonly model: string;
  /** Whether the same request always means the same reply: temperature 0 and a seed, both said in the request. */
  readonly deterministic: boolean;
  readonly wantsLogprobs: boolean;
  /** SHA-256 of each image file in the request, in order. */
  images(): readonly string[];
  /** SHA-256 of each text in the request taken together. */
  promptHash(): string;
  /**
   * SHA-256 over everything that determines the reply: model, texts, images by their hashes, sampling and every other field, whatever
   * their order. Fields that say who asks, not what, are left out.
   */
  key(): string;
}

/** Fields that do not bear on the reply. */
const immaterial: ReadonlySet<string> = new Set(['user', 'metadata', 'stream', 'stream_options', 'priority', 'store']);
/** No sensible request nests deeper; a hostile one could exhaust the stack. */
const deepest = 32;

export interface BodyLimits {
  readonly maxImagePixels: number;
}

/** Raises GatewayProblem 400 for what is no chat request, wants streaming, or holds an image that is too large or not in the request itself. */
export async function readChatBody(bytes: Buffer, limits: BodyLimits): Promise<ChatBody> {
  const json = parseJson(bytes);
  const parsed = bodySchema.safeParse(json);
  if (!parsed.success) {
    const issue = parsed.error.issues[0];
    const path = issue.path.join('.');
    throw badRequest(`${path === '' ? 'The body' : path}: ${issue.message}`, path === '' ? undefined : path);
  }
  const { model, messages, stream, temperature, seed, logprobs } = parsed.data;
  if (stream === true) throw badRequest('This gateway does not stream: leave out "stream".', 'stream');
  const parts = messages.flatMap(({ content }) => (Array.isArray(content) ? content : []));
  const urls = parts.flatMap((part) => (part.type === 'image_url' ? [part.image_url.url] : []));
  for (const url of urls) await checkImage(url, limits.maxImagePixels);
  const hashes = new Map<string, string>();
  const hashOf = (url: string): string => {
    const hash = hashes.get(url) ?? sha256(imageBytes(url));
    hashes.set(url, hash);
    return hash;
  };
  let key: string | null = null;
  return {
    model,
    deterministic: temperature === 0 && typeof seed === 'number',
    wantsLogprobs: logprobs === true,
    images: () => urls.map(hashOf),
    promptHash: () => {
      const hash = createHash('sha256');
      for (const { content } of messages) {
        const texts = Array.isArray(content)
          ? content.map((part) => (part.type === 'text' ? part.text : ''))
          : [content];
        for (const text of texts) hash.update(`${text ?? ''}\n`);
      }
      return hash.digest('hex');
    },
    key: () => (key ??= sha256(canonical(json, hashOf, 0))),
  };
}

function parseJson(bytes: Buffer): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (cause) {
    throw badRequest(`The body is not JSON: ${cause instanceof Error ? cause.message.slice(0, 200) : 'unreadable'}`);
  }
}

const dataUrl = /^data:image(\/[a-z0-9.+-]+)?;base64,/i;

/** Raises GatewayProblem for what is not strictly base64: two texts must never stand for the same bytes. */
function imageBytes(url: string): Buffer {
  const start = url.indexOf(',') + 1;
  const bytes = Buffer.from(url.slice(start), 'base64');
  const padding = url.endsWith('==') ? 2 : url.endsWith('=') ? 1 : 0;
  // Characters that do not belong there are skipped in decoding, and so are missing in its length.
  if (bytes.length === Math.floor(((url.length - start - padding) * 3) / 4)) return bytes;
  throw badRequest('An image is not base64.', 'image_url');
}

async function checkImage(url: string, maxPixels: number): Promise<void> {
  // What an address leads to can change between two requests, and an upstream would fetch it on the caller's behalf.
  if (!dataUrl.test(url)) {
    throw badRequest('An image has to be in the request itself: data:image/png;base64,...', 'image_url');
  }
  const pixels = await pixelCount(url.slice(url.indexOf(',') + 1));
  if (pixels === null) throw badRequest('An image cannot be read: its header is that of no known format.', 'image_url');
  if (pixels <= maxPixels) return;
  const found = (pixels / 1e6).toFixed(1);
  throw badRequest(`An image has ${found} megapixels; at most ${maxPixels / 1e6} are allowed.`, 'image_url');
}

/** JSON with the fields of every object in order, and the images of `image_url` as their hashes. */
function canonical(value: unknown, hashOf: (url: string) => string, depth: number, inImage = false): string {
  if (depth > deepest) throw badRequest(`The body is nested deeper than ${deepest} levels.`);
  if (typeof value === 'string') return JSON.stringify(inImage && dataUrl.test(value) ? hashOf(value) : value);
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  if (Array.isArray(value)) return `[${value.map((item) => canonical(item, hashOf, depth + 1)).join(',')}]`;
  const fields = Object.entries(value)
    .filter(([name, field]) => field !== null && !(depth === 0 && immaterial.has(name)))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const coded = fields.map(
    ([name, field]) =>
      `${JSON.stringify(name)}:${canonical(field, hashOf, depth + 1, inImage || name === 'image_url')}`,
  );
  return `{${coded.join(',')}}`;
}
