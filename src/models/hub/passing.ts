/** What may go better at another try. */

/** Something that may pass: the connection broke, or the server has too much to do. */
export class Passing extends Error {
  constructor(
    readonly found: string,
    readonly waitS: number | null = null,
    cause?: unknown,
  ) {
    super(found, { cause });
  }
}

/** What of a broken exchange may pass; null where it would be the same again. */
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
