/**
 * Access to a server that this program starts. It listens on a loopback address, which every user of the machine can reach: only the server and the
 * runs that use it know its token.
 */
import { randomBytes } from 'node:crypto';

/** The environment variable with such a server's token: only its user can read its environment, but anybody its arguments. */
export const TOKEN_VARIABLE = 'EDITRL_SERVER_TOKEN';

/** 64 hexadecimal digits. */
export function newToken(): string {
  return randomBytes(32).toString('hex');
}
