/** Chat requests at the gateway: validation, one exchange with an upstream, and the meaning of its reply. */
import type { IncomingHttpHeaders } from 'node:http';
import { setImmediate } from 'node:timers/promises';
import { redactBytes, type Redact } from '../../core/http/key.js';
import type { HttpPool } from '../../core/http/pool.js';
import { Refusal, badRequest } from '../../core/http/refusal.js';
import { causeOf } from '../../core/http/request.js';
import { byStatus, type StatusTable } from '../../core/http/status.js';
import { dataUrlContent, isBase64, pixelCount } from '../../core/images/image_text.js';
import type { ReplyMeaning } from '../../core/remote/remote.js';
import { chatSchema, imagesOf, parseChat } from '../judge/chat_messages.js';
import { tokensOf } from '../judge/completion.js';
import { excerpt } from '../judge/parse.js';
import type { Tokens } from '../score/types.js';

/** A reply, or why there is none. Never contains the upstream's key, even if the upstream quoted it. */
export type Exchange =
  | {
      readonly kind: 'reply';
      readonly status: number;
      readonly body: Buffer;
      /** The headers that a caller can use. */
      readonly headers: Readonly<Record<string, string>>;
      /** Null if the upstream does not count them. */
      readonly tokens: Tokens | null;
    }
  | { readonly kind: 'failed'; readonly reason: FailureReason; readonly detail: string };

/**
 * `connection`: there was none. `bad_reply`: the reply is not a completion, is too large or not HTTP, or the connection broke while request or
 * reply were sent. One request can cause all of these.
 */
type FailureReason = 'connection' | 'timeout' | 'given_up' | 'bad_reply' | 'refused_key';

const FAILURES: Readonly<Record<FailureReason, ReplyMeaning>> = {
  connection: 'failed',
  bad_reply: 'doubtful',
  refused_key: 'key_rejected',
  timeout: 'late',
  given_up: 'abandoned',
};

const STATUSES: StatusTable<ReplyMeaning> = {
  200: 'answered',
  429: 'turned_away',
  // A proxy answers so while its engine is down.
  502: 'failed',
  503: 'overwhelmed',
  504: 'failed',
  // An engine answers so to a request that it cannot take, and to every request once it is dead.
  '5xx': 'doubtful',
  rest: 'refused',
};

export function meaningOf(found: Exchange): ReplyMeaning {
  return found.kind === 'failed' ? FAILURES[found.reason] : byStatus(STATUSES, found.status);
}

/** Names the kind of error in metrics. Null for a completion. */
export function errorKindOf(found: Exchange): string | null {
  if (found.kind === 'failed') return found.reason;
  if (found.status === 200) return null;
  if (found.status === 429) return 'rate_limited';
  return found.status >= 500 ? 'server_error' : 'bad_request';
}

interface ExchangeRequest {
  /** Base URL. */
  readonly url: string;
  readonly body: Buffer;
  /** The upstream's own key. The caller's is never forwarded. */
  readonly key: string | null;
  readonly pool: Pick<HttpPool, 'exchange' | 'redact'>;
  /** Aborted when the caller disconnects. */
  readonly caller: AbortSignal;
  /** Aborted when the time is over. */
  readonly deadline: AbortSignal;
}

/** Sends one chat request. Never rejects. */
export async function exchange({ url, body, key, pool, caller, deadline }: ExchangeRequest): Promise<Exchange> {
  const { redact } = pool;
  let sending = false;
  try {
    const reply = await pool.exchange(`${url}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...(key === null ? {} : { authorization: `Bearer ${key}` }) },
      body,
      signal: deadline,
      onSending: () => (sending = true),
    });
    return readReply(reply.status, redactBytes(reply.body, redact), usefulHeaders(reply.headers, redact));
  } catch (error) {
    if (caller.aborted) return { kind: 'failed', reason: 'given_up', detail: 'the caller disconnected' };
    if (deadline.aborted) return { kind: 'failed', reason: 'timeout', detail: 'no answer in time' };
    return { kind: 'failed', reason: sending ? 'bad_reply' : 'connection', detail: redact(causeOf(error)) };
  }
}

/** Headers for retry times, quotas, request ids, and the content type of the body. */
const FORWARDED = /^(?:content-type|x-request-id|retry-after(?:-ms)?|x-should-retry|openai-.+|x-ratelimit-.+)$/;

function usefulHeaders(headers: IncomingHttpHeaders, redact: Redact): Record<string, string> {
  const useful: Record<string, string> = {};
  for (const [name, value] of Object.entries(headers)) {
    if (value !== undefined && FORWARDED.test(name)) useful[name] = redact(String(value));
  }
  return useful;
}

function readReply(status: number, body: Buffer, headers: Readonly<Record<string, string>>): Exchange {
  if (status === 401 || status === 403) {
    return { kind: 'failed', reason: 'refused_key', detail: `it rejected the gateway's key (HTTP ${status})` };
  }
  if (status !== 200) return { kind: 'reply', status, body, headers, tokens: null };
  let completion: unknown;
  try {
    completion = JSON.parse(body.toString('utf8'));
  } catch {
    completion = null;
  }
  // A completion without choices or text goes to the caller, who decides what to do with it.
  if (
    typeof completion === 'object' &&
    completion !== null &&
    'choices' in completion &&
    Array.isArray(completion.choices)
  ) {
    return { kind: 'reply', status, body, headers, tokens: tokensOf(completion) };
  }
  const detail = `HTTP 200 without a completion: ${excerpt(body.toString('utf8', 0, 400))}`;
  return { kind: 'failed', reason: 'bad_reply', detail };
}

interface ReadingOptions {
  readonly maxImages: number;
  readonly maxImagePixels: number;
  /** Aborted when the caller disconnects. Nothing more is read then. */
  readonly caller?: AbortSignal;
}

/**
 * The model that a request names. Raises Refusal 400 for a body that is not a chat request, for streaming, for too many images, and for an
 * image that is too large, not base64 or not in the request itself.
 */
export async function readChatModel(bytes: Buffer, options: ReadingOptions): Promise<string> {
  const { caller, maxImages, maxImagePixels } = options;
  const requireCaller = (): void => {
    if (caller?.aborted === true) throw callerGone();
  };
  requireCaller();
  const { request } = parseChat(bytes, chatSchema);
  const urls = imagesOf(request.messages);
  if (urls.length > maxImages) {
    throw badRequest(`The request has ${urls.length} images; at most ${maxImages} are allowed.`, 'messages');
  }
  for (const url of urls) {
    await checkImage(url, maxImagePixels);
    // Yields to other requests, because a large image takes as long as many small ones.
    if (url.length > LARGE_TEXT) await setImmediate();
    requireCaller();
  }
  return request.model;
}

export function callerGone(): Refusal {
  return new Refusal('caller_gone', 'The caller disconnected.');
}

const IMAGE_URL = /^data:image(?:\/[a-z0-9.+-]+)?;base64,/i;
const LARGE_TEXT = 1_000_000;

/** Raises Refusal for anything but an image within the request, and for an image with too many pixels. */
async function checkImage(url: string, maxPixels: number): Promise<void> {
  const text = dataUrlContent(url);
  // The content behind an address can change between two requests, and an upstream would fetch it for the caller.
  if (text === null || !IMAGE_URL.test(url)) {
    throw badRequest('An image has to be in the request itself: data:image/png;base64,...', 'image_url');
  }
  if (!isBase64(text)) throw badRequest('An image is not base64 (A-Z a-z 0-9 + / and padding).', 'image_url');
  const pixels = await pixelCount(text);
  if (pixels === null) throw badRequest('An image cannot be read: its format is unknown.', 'image_url');
  if (pixels <= maxPixels) return;
  const found = (pixels / 1e6).toFixed(1);
  throw badRequest(`An image has ${found} megapixels; at most ${maxPixels / 1e6} are allowed.`, 'image_url');
}
