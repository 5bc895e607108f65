/**
 * Who may ask a server that this program starts by itself. It listens on a loopback address, which every user of the machine reaches: its
 * token is known to it and to the runs that use it, and to nobody else.
 */
import { randomBytes } from 'node:crypto';

/** Where such a server finds its token: its environment is its user's alone to read, its arguments are everybody's. */
export const TOKEN_VARIABLE = 'EDITRL_SERVER_TOKEN';

/** 64 hexadecimal digits. */
export function newToken(): string {
  return randomBytes(32).toString('hex');
}
