/**
 * One HTTP request with its whole reply. It uses undici's dispatch, because the streams of its `request` cost processor time and no one
 * reads replies in parts. An abort signal also covers a server that stalls after its headers.
 */
import { openFilesAdvice, saysTooManyFiles } from '../process.js';
import type { IncomingHttpHeaders } from 'node:http';
import type { Readable } from 'node:stream';
import type { Dispatcher } from 'undici';

/** A body that is sent in chunks and never in memory as a whole. Each iteration yields all chunks again. */
export interface PiecewiseBody extends Iterable<Uint8Array> {
  readonly byteLength: number;
}

export interface HttpRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  readonly headers: Record<string, string>;
  readonly body: string | Buffer | PiecewiseBody | null;
  readonly signal: AbortSignal | null;
  /** Called when a connection exists and the request is sent. Later failures show that the server was there. */
  readonly onSending?: () => void;
}

export interface WholeReply {
  readonly status: number;
  /** By lower-case names. */
  readonly headers: IncomingHttpHeaders;
  readonly body: Buffer;
}

/** Why a request failed: the innermost message of the chain of causes, with its code. Outer messages only report that there was an error. */
export function causeOf(error: unknown): string {
  let innermost = error;
  for (let depth = 0; depth < 8 && innermost instanceof Error && innermost.cause instanceof Error; depth++) {
    innermost = innermost.cause;
  }
  if (!(innermost instanceof Error)) return String(innermost);
  const { message, name } = innermost;
  const { code } = innermost as NodeJS.ErrnoException;
  if (message === '') return code ?? name;
  const described = code === undefined || message.includes(code) ? message : `${code}: ${message}`;
  return saysTooManyFiles(innermost) ? `${described}: too many open files. ${openFilesAdvice()}` : described;
}

/** No server listens there, or not yet. */
const NOT_THERE: ReadonlySet<unknown> = new Set([
  'ECONNREFUSED',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  'UND_ERR_CONNECT_TIMEOUT',
]);

/** Whether a request failed because no server listens at the address, or not yet. */
export function isNotThere(error: unknown): boolean {
  for (let at = error; at instanceof Error; at = at.cause) {
    if (NOT_THERE.has((at as NodeJS.ErrnoException).code)) return true;
  }
  return false;
}

/** Rejects with undici's error, or with the signal's reason once it aborts. */
export function exchangeWhole(agent: Dispatcher, url: string, request: HttpRequest): Promise<WholeReply> {
  const { origin, pathname, search } = new URL(url);
  const { method, signal, onSending } = request;
  const { headers, body } = sent(request);
  return new Promise((resolve, reject) => {
    let cancel: ((reason: Error) => void) | null = null;
    const abort = (): void => {
      const reason = signal?.reason instanceof Error ? signal.reason : new Error('called off');
      cancel?.(reason);
      // A request that waits for a connection cannot be canceled yet.
      fail(reason);
    };
    const fail = (error: Error): void => {
      signal?.removeEventListener('abort', abort);
      reject(error);
    };
    if (signal?.aborted === true) {
      abort();
      return;
    }
    signal?.addEventListener('abort', abort);
    let status = 0;
    let replied: IncomingHttpHeaders = {};
    const chunks: Buffer[] = [];
    agent.dispatch(
      { origin, path: `${pathname}${search}`, method, headers, body },
      {
        onRequestStart: (controller) => {
          cancel = (reason) => controller.abort(reason);
          onSending?.();
          if (signal?.aborted === true) abort();
        },
        onResponseStart: (_controller, code, names) => {
          status = code;
          replied = names;
        },
        onResponseData: (_controller, chunk) => void chunks.push(chunk),
        onResponseEnd: () => {
          signal?.removeEventListener('abort', abort);
          resolve({ status, headers: replied, body: chunks.length === 1 ? chunks[0] : Buffer.concat(chunks) });
        },
        onResponseError: (_controller, error) => fail(signal?.aborted === true ? error : withoutAbort(error)),
      },
    );
  });
}

/** undici reports an abort if a proxy rejects a tunnel. Callers would take it for their own time limit. */
function withoutAbort(error: Error): Error {
  return error.name === 'AbortError' ? new Error(error.message) : error;
}

/** undici accepts iterables, which its types do not include, and reads the length from the header. */
function sent({ headers, body }: HttpRequest): {
  readonly headers: Record<string, string>;
  readonly body: string | Buffer | Readable | null;
} {
  if (body === null || typeof body === 'string' || Buffer.isBuffer(body)) return { headers, body };
  const iterated = body as unknown as Readable;
  return { headers: { ...headers, 'content-length': String(body.byteLength) }, body: iterated };
}
