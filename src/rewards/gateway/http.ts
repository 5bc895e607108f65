/** The HTTP side of the gateway that knows nothing of judges: bodies, tokens, replies. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { badRequest, GatewayProblem } from './problem.js';

/** Reads a whole body. Raises GatewayProblem 413 as soon as it is too large, 415 for what is no JSON. */
export async function readBody(request: IncomingMessage, maxBytes: number): Promise<Buffer> {
  // A page in a browser can post other types to a loopback address without asking first.
  if (!/^application\/json\b/i.test(request.headers['content-type'] ?? '')) {
    throw new GatewayProblem(415, 'BadRequestError', 'The body has to be JSON: content-type application/json.');
  }
  const tooLarge = (): GatewayProblem =>
    new GatewayProblem(413, 'BadRequestError', `The body is larger than ${maxBytes} bytes.`);
  if (Number(request.headers['content-length'] ?? 0) > maxBytes) throw tooLarge();
  const pieces: Buffer[] = [];
  let size = 0;
  try {
    for await (const piece of request as AsyncIterable<Buffer>) {
      size += piece.length;
      if (size > maxBytes) throw tooLarge();
      pieces.push(piece);
    }
  } catch (error) {
    if (error instanceof GatewayProblem) throw error;
    throw badRequest('The body ended before it was whole.');
  }
  return pieces.length === 1 ? pieces[0] : Buffer.concat(pieces, size);
}

/** The token of `Authorization: Bearer ...`; null where there is none. */
export function bearerToken(request: IncomingMessage): string | null {
  return /^Bearer (.+)$/i.exec(request.headers.authorization ?? '')?.[1] ?? null;
}

/** Whether a caller may ask; compared in constant time. */
export function mayAsk(request: IncomingMessage, token: string | null): boolean {
  if (token === null) return true;
  const hash = (text: string): Buffer => createHash('sha256').update(text).digest();
  return timingSafeEqual(hash(bearerToken(request) ?? ''), hash(token));
}

export function sendJson(
  response: ServerResponse,
  status: number,
  body: unknown,
  headers: Record<string, string> = {},
): void {
  sendBytes(response, status, Buffer.from(JSON.stringify(body)), 'application/json', headers);
}

export function sendBytes(
  response: ServerResponse,
  status: number,
  body: Buffer,
  contentType: string,
  headers: Record<string, string> = {},
): void {
  if (response.headersSent || response.destroyed) return;
  response.writeHead(status, { 'content-type': contentType, 'content-length': body.length, ...headers });
  response.end(body);
}

export function sendProblem(response: ServerResponse, problem: GatewayProblem): void {
  // What is left of a refused body is not read, so the connection cannot be used again.
  const close = [413, 415].includes(problem.status) ? { connection: 'close' } : {};
  sendJson(response, problem.status, problem.body(), { ...problem.headers(), ...close });
}
