/** The API key of a judge's server: where it comes from, and whether it can be sent. It never appears in messages. */
import { ConfigError } from '../errors.js';
import { isLoopback } from './guard.js';

/** A placeholder for no key: the client library requires one, and servers without keys ignore it. */
export const noKey = 'none';

/** The key without surrounding white space. Raises ConfigError if an HTTP header cannot carry it. */
export function checkedKey(key: string | undefined, where: string): string | undefined {
  const trimmed = key?.trim();
  if (trimmed === undefined || trimmed === '') return undefined;
  if (/^[\x21-\x7e]+$/.test(trimmed)) return trimmed;
  throw new ConfigError(
    'the API key contains spaces, line breaks or non-ASCII characters, which HTTP headers cannot carry',
    {
      where,
      next: 'Set it again, without quotes and on one line.',
    },
  );
}

/** The key in an environment variable. Raises ConfigError if it is not set and the server needs one: an https server on another machine. */
export function keyFor(url: string, variable: string, environment: NodeJS.ProcessEnv): string | undefined {
  const key = checkedKey(environment[variable], variable);
  if (key !== undefined || !needsKey(url)) return key;
  throw new ConfigError(`the judge at ${new URL(url).origin} needs an API key, but ${variable} is not set`, {
    where: variable,
    next: `Run: export ${variable}=... (or name another variable), then start again.`,
  });
}

/** Whether a URL looks like a public service: https, and not on this machine. */
export function needsKey(url: string): boolean {
  const { protocol, hostname } = new URL(url);
  return protocol === 'https:' && !isLoopback(hostname);
}

/** Shorter texts are placeholders for servers without keys. Replacing `none` would garble replies. */
const MIN_SECRET_LENGTH = 6;

/** Replaces the key. */
const mark = '[key]';

export type Redact = (text: string) => string;

/** Replaces an ASCII key in texts, also as JSON, HTML or URLs escape it. Does nothing if the key is missing or too short. */
export function redactor(secret: string | null | undefined): Redact {
  if (typeof secret !== 'string' || secret.length < MIN_SECRET_LENGTH) return (text) => text;
  const spelled = new RegExp([...secret].map(spellings).join(''), 'g');
  return (text) => text.replace(spelled, mark);
}

/** Redacts a forwarded body. All other bytes stay unchanged. */
export function redactBytes(bytes: Buffer, redact: Redact): Buffer {
  // One character per byte, whatever the body's encoding.
  const text = bytes.toString('latin1');
  const clean = redact(text);
  return clean === text ? bytes : Buffer.from(clean, 'latin1');
}

/** A pattern for one character: plain, after a backslash, or escaped by its number as in JSON, HTML and URLs. */
function spellings(letter: string): string {
  const code = letter.charCodeAt(0);
  const plain = `\\\\?\\x${hex(code)}`;
  const number = anyCase(hex(code));
  return `(?:${plain}|\\\\u00${number}|&#(?:[xX]0*${number}|0*${code});|%${number})`;
}

function hex(code: number): string {
  return code.toString(16).padStart(2, '0');
}

function anyCase(digits: string): string {
  return digits.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`);
}
