/**
 * Who may send requests: programs that know the token, or every program if only this machine can reach the address. Web pages may not,
 * except pages that the server itself served.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isIPv4 } from 'node:net';
import { ConfigError } from '../errors.js';
import { Refusal } from './refusal.js';

/** Whether only programs of this machine can reach a host, as written in an address or a URL (`::1` or `[::1]`). */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase();
  return ['localhost', '::1', '[::1]'].includes(name) || (isIPv4(name) && name.startsWith('127.'));
}

/** Shorter tokens can be guessed. */
const MIN_TOKEN_LENGTH = 16;

/**
 * Raises ConfigError (exit code 2) if other machines can reach the address and there is no token, and for a token that is too short or cannot
 * be sent in an `Authorization` header.
 */
export function requireToken(host: string, token: string | null): void {
  if (token === null) {
    if (isLoopback(host)) return;
    throw new ConfigError(`other machines can reach ${host}, so a token is required`, {
      where: '--host',
      next: 'Put a secret into an environment variable and name it with --token-env, or listen on 127.0.0.1.',
    });
  }
  if (token.length >= MIN_TOKEN_LENGTH && /^[\x21-\x7e]+$/.test(token)) return;
  throw new ConfigError(
    `the token has ${token.length} characters; allowed: at least ${MIN_TOKEN_LENGTH}, all printable ASCII without spaces`,
    { where: '--token-env', next: 'Make one with: openssl rand -hex 32' },
  );
}

/** The token of `Authorization: Bearer ...`. Null if there is none. */
export function bearerToken({ authorization }: IncomingHttpHeaders): string | null {
  return /^Bearer ([\x21-\x7e]+)$/i.exec(authorization ?? '')?.[1] ?? null;
}

/** Checks the headers of every request before its body is read. */
export class Guard {
  readonly #digest: Buffer | null;

  /**
   * @param host the address of the server.
   * @param token null admits every program that reaches the address. Raises the ConfigErrors of `requireToken`.
   * @param ownPages whether pages that this server served may send requests.
   */
  constructor(
    private readonly host: string,
    token: string | null,
    private readonly ownPages: boolean,
  ) {
    requireToken(host, token);
    this.#digest = token === null ? null : digest(token);
  }

  /** Whether the request carries the token, compared in constant time. */
  isTrusted(headers: IncomingHttpHeaders): boolean {
    return this.#digest === null || timingSafeEqual(digest(bearerToken(headers) ?? ''), this.#digest);
  }

  /** Raises Refusal for requests from web pages: any page in a browser can reach the loopback addresses of its machine. */
  rejectPages(headers: IncomingHttpHeaders): void {
    const site = headers['sec-fetch-site'] ?? 'none';
    const isOwn = this.ownPages && headers.origin === `http://${headers.host}`;
    if ((headers.origin !== undefined && !isOwn) || (site !== 'none' && site !== 'same-origin')) {
      throw new Refusal(
        'forbidden',
        this.ownPages
          ? 'Requests from pages of other sites are rejected. Open the printed address directly.'
          : 'Requests from web pages are rejected: this server is for programs.',
      );
    }
    if (!isLoopback(this.host)) return;
    // With DNS rebinding, a page of another name has this machine's address. Its requests carry that name.
    const name = (headers.host ?? '').replace(/:\d*$/, '').toLowerCase();
    if (isLoopback(name) || name === this.host.toLowerCase()) return;
    throw new Refusal(
      'forbidden',
      `Requests to the host '${name.slice(0, 100)}' are rejected. Use 127.0.0.1 or localhost.`,
    );
  }

  /** Raises Refusal for a request without the token. */
  requireTrusted(headers: IncomingHttpHeaders): void {
    if (this.isTrusted(headers)) return;
    const found = headers.authorization === undefined ? 'there is none' : 'this one is wrong';
    throw new Refusal('unauthorized', `A token is required (Authorization: Bearer TOKEN), and ${found}.`, {
      headers: { 'www-authenticate': 'Bearer' },
    });
  }
}

/** Digests have the same length for every text, which a comparison in constant time needs. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
