/** Parses a chat request far enough to route and to limit it; the body itself is passed on as received. */
import { setImmediate } from 'node:timers/promises';
import { badRequest, Refusal } from '../../http/refusal.js';
import { chatSchema, imagesOf, parseChat } from '../judge/chat_messages.js';
import { dataUrlContent, isBase64, pixelCount } from '../../core/image_text.js';

export interface ReadingOptions {
  readonly maxImages: number;
  readonly maxImagePixels: number;
  /** Aborted when the caller goes away, for whom nothing more is done. */
  readonly caller?: AbortSignal;
}

/**
 * The model that a request asks. Raises Refusal 400 for what is no chat request, wants streaming, or holds an image that is too large, not base64 or not in the request
 * itself, and for too many of them.
 */
export async function readChatModel(bytes: Buffer, options: ReadingOptions): Promise<string> {
  refuseGone(options.caller);
  const { asked } = parseChat(bytes, chatSchema);
  const urls = imagesOf(asked.messages);
  if (urls.length > options.maxImages) {
    throw badRequest(`There are ${urls.length} images; at most ${options.maxImages} are taken at once.`, 'messages');
  }
  for (const url of urls) {
    await checkImage(url, options.maxImagePixels);
    // Yields to others: a large image takes as long as many small requests.
    if (url.length > largeText) await setImmediate();
    refuseGone(options.caller);
  }
  return asked.model;
}

function refuseGone(caller: AbortSignal | undefined): void {
  if (caller?.aborted === true) throw new Refusal('caller_gone', 'The caller went away.');
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
