/** Which failures of a connection to the Hub may go better at another try. */
import { Passing } from '../../core/retry.js';
import type { StatusTable } from '../../http/meaning.js';

/** What the status of a reply of the Hub means. */
export const HUB_STATUSES: StatusTable<'taken' | 'passing' | 'refused'> = {
  '2xx': 'taken',
  429: 'passing',
  '5xx': 'passing',
  rest: 'refused',
};

/** The part of a network failure that a retry may get past; null if retrying would fail the same way. */
export function passingOf(cause: unknown): Passing | null {
  const code = codeOf(cause);
  return MAY_PASS.has(code) ? new Passing(code, null, cause) : null;
}

/** A server that was there may be there again; one that cannot be reached at all is not waited for. */
const MAY_PASS: ReadonlySet<string> = new Set([
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
