/** The key that a judge's server may require: where it comes from, and whether it can be sent. It never appears in messages. */
import { ConfigError } from '../core/errors.js';
import { isLoopback } from './guard.js';

/** Stands for no key: the client library wants one, and servers without keys ignore it. */
export const noKey = 'none';

/** The key without a line break at the end of its file. Raises ConfigError if an HTTP header cannot carry it. */
export function checkedKey(key: string | undefined, where: string): string | undefined {
  const trimmed = key?.trim();
  if (trimmed === undefined || trimmed === '') return undefined;
  if (/^[\x21-\x7e]+$/.test(trimmed)) return trimmed;
  throw new ConfigError(
    'the API key holds spaces, line breaks or letters outside ASCII, which no HTTP header carries',
    {
      where,
      next: 'Set it again, without quotes and on one line.',
    },
  );
}

/**
 * The key in an environment variable. Raises ConfigError if it is not set although the server at the address needs one: an https server that is not
 * on this machine.
 */
export function keyFor(url: string, variable: string, environment: NodeJS.ProcessEnv): string | undefined {
  const key = checkedKey(environment[variable], variable);
  if (key !== undefined || !needsKey(url)) return key;
  throw new ConfigError(`the judge at ${new URL(url).origin} needs an API key, but ${variable} is not set`, {
    where: variable,
    next: `Run: export ${variable}=... (or name another variable), then start again.`,
  });
}

/** Whether the server at a URL is taken for a public service: https, and not this machine. */
export function needsKey(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'https:' && !isLoopback(hostname);
}
