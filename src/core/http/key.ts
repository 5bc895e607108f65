/** The key that a judge's server may require: where it comes from, and whether it can be sent. It never appears in messages. */
import { ConfigError } from '../errors.js';
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

/** Shorter keys are what people type where a key is asked for and none is needed; to replace `none` would garble replies. */
const MIN_SECRET_LENGTH = 6;

/** Stands where the key stood. */
const mark = '[key]';

export type Redact = (text: string) => string;

/**
 * Replaces a key of ASCII letters in texts, however JSON, a web page or an address spells its letters. A key that is missing, or too short to
 * be one, changes nothing.
 */
export function redactor(secret: string | null | undefined): Redact {
  if (typeof secret !== 'string' || secret.length < MIN_SECRET_LENGTH) return (text) => text;
  const spelled = new RegExp([...secret].map(spellings).join(''), 'g');
  return (text) => text.replace(spelled, mark);
}

/** The same for a body that is passed on: every byte that is not the key's stays as it is. */
export function redactBytes(bytes: Buffer, redact: Redact): Buffer {
  // One letter per byte, whatever the body's encoding.
  const text = bytes.toString('latin1');
  const clean = redact(text);
  return clean === text ? bytes : Buffer.from(clean, 'latin1');
}

/** A pattern for one letter: itself, after a backslash, or by its number as JSON, HTML and URLs write it. */
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
