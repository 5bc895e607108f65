/** Keeps a key out of whatever a server sends back: some quote the key that they refuse, and replies end in logs and records. */

/** Shorter keys are what people type where a key is asked for and none is needed; to replace `none` would garble replies. */
const shortestSecret = 6;

/** Stands where the key stood. */
const mark = '[key]';

export type Redact = (text: string) => string;

/**
 * Replaces a key of ASCII letters in texts, however JSON, a web page or an address spells its letters. A key that is missing, or too short to
 * be one, changes nothing.
 */
export function redactor(secret: string | null | undefined): Redact {
  if (typeof secret !== 'string' || secret.length < shortestSecret) return (text) => text;
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
