/** One request to one reward server, and what its reply means. */
import type { Deadline } from '../../../core/deadline.js';
import type { HttpPool, TextResponse } from '../../../http/pool.js';
import { byStatus, retryAfterMs, type StatusTable } from '../../../http/meaning.js';
import { causeOf } from '../../../http/request.js';
import { excerpt } from '../../judge/parse.js';
import type { ReplyItem } from '../wire.js';
import type { UnscoredReason } from '../../score/types.js';

/**
 * `elsewhere`: another server may do better, this one does not work; `failed`: another one may do better, and what is at fault is not known;
 * `busy`: it works, and has too much to do; `give_up`: the request itself is
 * at fault, and every server would say so.
 */
export type Attempt =
  | { readonly kind: 'item'; readonly item: ReplyItem; readonly reward: string }
  | {
      readonly kind: 'elsewhere' | 'failed' | 'busy' | 'give_up';
      readonly reason: UnscoredReason;
      readonly detail: string;
      readonly retryAfterMs?: number;
    };

export interface AttemptRequest {
  /** Base URL of the server. */
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
  /** The key of the item in the body, which the reply has to name. */
  readonly key: string;
  /** What a reply with a status of success means. */
  readonly read: (text: string, url: string, key: string) => Attempt;
}

/** Never rejects: whatever a server does is a result. */
export async function attempt(http: HttpPool, request: AttemptRequest, deadline: Deadline): Promise<Attempt> {
  const { url, headers, body, key, read } = request;
  let response: TextResponse;
  let text: string;
  try {
    response = await http.fetch(`${url}/score`, { method: 'POST', headers, body, signal: deadline.signal });
    text = await response.text();
  } catch (error) {
    if (deadline.over) return { kind: 'elsewhere', reason: 'timeout', detail: `${url}: no answer in time` };
    return { kind: 'elsewhere', reason: 'connection', detail: `${url}: ${causeOf(error)}` };
  }
  return response.ok ? read(text, url, key) : readRefusal(response, text, url);
}

type Refusal = Exclude<Attempt, { kind: 'item' }>;

const badRequest = { kind: 'give_up', reason: 'bad_request' } as const;
const STATUSES: StatusTable<Pick<Refusal, 'kind' | 'reason'>> = {
  // These say something about the request, not about the server.
  400: badRequest,
  413: badRequest,
  415: badRequest,
  422: badRequest,
  429: { kind: 'busy', reason: 'rate_limited' },
  500: { kind: 'failed', reason: 'server_error' },
  '5xx': { kind: 'elsewhere', reason: 'server_error' },
  // A wrong token or address is as good as a server that is down: another one may have the right one.
  rest: { kind: 'elsewhere', reason: 'bad_request' },
};

function readRefusal(response: TextResponse, text: string, url: string): Attempt {
  const { status } = response;
  const detail = `${url}: HTTP ${status} ${messageOf(text)}`;
  const refusal = { ...byStatus(STATUSES, status), detail };
  const wait = refusal.kind === 'busy' ? retryAfterMs((name) => response.headers.get(name)) : null;
  return wait === null ? refusal : { ...refusal, retryAfterMs: wait };
}

function messageOf(text: string): string {
  const body = parseJson(text) as { readonly error?: { readonly message?: unknown } } | null | undefined;
  const message = typeof body === 'object' ? body?.error?.message : undefined;
  return excerpt(typeof message === 'string' ? message : text);
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
