/**
 * Who may send requests: programs that know the token, or, if only this machine can reach the address, its programs; never web pages, except those
 * that the server itself served.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { isIPv4 } from 'node:net';
import { ConfigError } from '../errors.js';
import { Refusal } from './refusal.js';

/** Whether only programs of this machine can reach a host, as it stands in an address or a URL (`::1` or `[::1]`). */
export function isLoopback(host: string): boolean {
  const name = host.toLowerCase();
  return name === 'localhost' || name === '::1' || name === '[::1]' || (isIPv4(name) && name.startsWith('127.'));
}

/** Shorter tokens can be guessed. */
const minTokenLength = 16;

/**
 * Raises ConfigError (exit code 2) for an address that others can reach without a token, and for a token that is too short or
 * that no `Authorization` header can carry.
 */
export function requireToken(host: string, token: string | null): void {
  if (token === null) {
    if (isLoopback(host)) return;
    throw new ConfigError(`other machines can reach ${host}, so a token is required there`, {
      where: '--host',
      next: 'Put a secret into an environment variable and name it with --token-env, or listen on 127.0.0.1.',
    });
  }
  if (token.length >= minTokenLength && /^[\x21-\x7e]+$/.test(token)) return;
  throw new ConfigError(
    `the token has ${token.length} characters; allowed: at least ${minTokenLength}, all of them printable ASCII without spaces`,
    { where: '--token-env', next: 'Make one with: openssl rand -hex 32' },
  );
}

/** The token of `Authorization: Bearer ...`; null if there is none. */
export function bearerToken({ authorization }: IncomingHttpHeaders): string | null {
  return /^Bearer ([\x21-\x7e]+)$/i.exec(authorization ?? '')?.[1] ?? null;
}

/** Checks every request before anything of its body is read. */
export class Guard {
  readonly #digest: Buffer | null;

  /**
   * @param host the address that is listened on.
   * @param token null lets every program in that reaches the address. Raises ConfigError as `requireToken` does.
   * @param ownPages whether pages that came from this server may ask it.
   */
  constructor(
    private readonly host: string,
    token: string | null,
    private readonly ownPages = false,
  ) {
    requireToken(host, token);
    this.#digest = token === null ? null : digest(token);
  }

  /** Whether the request carries the token; the time that this takes says nothing about it. */
  knows(headers: IncomingHttpHeaders): boolean {
    return this.#digest === null || timingSafeEqual(digest(bearerToken(headers) ?? ''), this.#digest);
  }

  /**
   * Raises Refusal for requests that a web page made a browser send: any page that a browser shows can reach the loopback addresses of its machine.
   */
  refusePages(headers: IncomingHttpHeaders): void {
    const site = headers['sec-fetch-site'] ?? 'none';
    // The name in it is checked below, like every request's.
    const own = this.ownPages && headers.origin === `http://${headers.host}`;
    if ((headers.origin !== undefined && !own) || (site !== 'none' && site !== 'same-origin')) {
      throw new Refusal(
        'forbidden',
        this.ownPages
          ? 'Requests from pages of other sites are refused; open the address that was printed by itself.'
          : 'Requests from web pages are refused: this server is for programs.',
      );
    }
    if (!isLoopback(this.host)) return;
    // A page whose name leads to this machine (DNS rebinding) counts as the server's own, but for the name.
    const name = hostName(headers.host ?? '');
    if (isLoopback(name) || name === this.host.toLowerCase()) return;
    throw new Refusal(
      'forbidden',
      `Requests to the host '${name.slice(0, 100)}' are refused here; ask for 127.0.0.1 or localhost.`,
    );
  }

  /** Raises Refusal for a request without the token. */
  admit(headers: IncomingHttpHeaders): void {
    if (this.knows(headers)) return;
    const found = headers.authorization === undefined ? 'there is none' : 'this one is not right';
    throw new Refusal('unauthorized', `A token is required (Authorization: Bearer TOKEN), and ${found}.`, {
      headers: { 'www-authenticate': 'Bearer' },
    });
  }
}

/** A `Host` header without its port. */
function hostName(header: string): string {
  return header.replace(/:\d*$/, '').toLowerCase();
}

/** A digest has the same length for every text, which a comparison in constant time needs. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
