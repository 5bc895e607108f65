/** Which failures of a connection to the Hub may succeed on a retry. */
import { TransientError } from '../../core/retry.js';
import type { StatusTable } from '../../http/meaning.js';

/** The meaning of the status of a reply of the Hub. */
export const HUB_STATUSES: StatusTable<'taken' | 'transient' | 'refused'> = {
  '2xx': 'taken',
  429: 'transient',
  '5xx': 'transient',
  rest: 'refused',
};

/** The part of a network failure that a retry may get past; null if retrying would fail the same way. */
export function transientErrorOf(cause: unknown): TransientError | null {
  const code = codeOf(cause);
  return TRANSIENT_CODES.has(code) ? new TransientError(code, null, cause) : null;
}

/** A server that answered before may come back; one that cannot be reached at all is not waited for. */
const TRANSIENT_CODES: ReadonlySet<string> = new Set([
  'EAI_AGAIN',
  'ECONNRESET',
  'EPIPE',
  'UND_ERR_BODY_TIMEOUT',
  'UND_ERR_HEADERS_TIMEOUT',
  'UND_ERR_SOCKET',
]);

/** The system's word for what broke a connection; `fetch` wraps it. */
export function codeOf(error: unknown): string {
  const { code, cause, message } = error as { code?: unknown; cause?: unknown; message?: string };
  if (typeof code === 'string') return code;
  return cause instanceof Error ? codeOf(cause) : (message ?? String(error));
}
