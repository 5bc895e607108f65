/** Who may ask: addresses that only this machine reaches, and the bearer token for all others. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import { ConfigError } from '../core/errors.js';
import { Refusal } from './refusal.js';

/** Whether only programs of this machine can reach a server that listens there. */
export function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host);
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
      next: 'Put a secret into an environment variable and name it: --token-env EDITRL_REWARD_TOKEN; or listen on 127.0.0.1.',
    });
  }
  if (token.length >= minTokenLength && /^[\x21-\x7e]+$/.test(token)) return;
  throw new ConfigError(
    `the token has ${token.length} characters; allowed: at least ${minTokenLength}, all of them printable ASCII without spaces`,
    { where: '--token-env', next: 'Make one with: openssl rand -hex 32' },
  );
}

/** Checks every request before anything of its body is read. */
export class Guard {
  readonly #digest: Buffer | null;

  /** @param token null lets everybody in who reaches the address. */
  constructor(token: string | null) {
    this.#digest = token === null ? null : digest(token);
  }

  /** Whether the request carries the token; the time that this takes says nothing about it. */
  knows(headers: IncomingHttpHeaders): boolean {
    if (this.#digest === null) return true;
    const given = /^Bearer ([\x21-\x7e]+)$/i.exec(headers.authorization ?? '')?.[1] ?? '';
    return timingSafeEqual(digest(given), this.#digest);
  }

  /** Raises Refusal for a request without the token, and for one that a web page made a browser send. */
  admit(headers: IncomingHttpHeaders): void {
    // A browser on this machine reaches loopback addresses for every page that it shows; only browsers send this header.
    if (headers.origin !== undefined) {
      throw new Refusal('forbidden', 'Requests from web pages are refused: this server is for programs.');
    }
    if (this.knows(headers)) return;
    const found = headers.authorization === undefined ? 'there is none' : 'this one is not right';
    throw new Refusal('unauthorized', `A token is required (Authorization: Bearer TOKEN), and ${found}.`, {
      'www-authenticate': 'Bearer',
    });
  }
}

/** Of one length for every text, as the comparison needs. */
function digest(text: string): Buffer {
  return createHash('sha256').update(text).digest();
}
