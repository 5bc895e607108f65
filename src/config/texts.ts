/** Text files that settings name: what they say decides a result, so it is kept by its digest. */
import { readFileSync } from 'node:fs';
import { sha256 } from '../core/image.js';
import { recipeOf } from '../recipes/settings.js';
import type { RunSettings } from '../schema/run.js';
import { leaves } from '../schema/walk.js';

/** Digests of text files by the dotted paths of the settings that name them; null for one that could not be read. */
export type TextDigests = Readonly<Record<string, string | null>>;

/** SHA-256 of a file's text without the white space around it, in hexadecimal; null when it cannot be read, which whoever needs the text reports. */
export function textDigest(file: string): string | null {
  try {
    return sha256(Buffer.from(readFileSync(file, 'utf8').trim()));
  } catch {
    return null;
  }
}

/** The digests of all text files that settings name, as the files are at this moment. */
export function textDigests(settings: RunSettings): TextDigests {
  const named = leaves(recipeOf(settings).schema, settings).filter(({ mark }) => mark.text === true);
  return Object.fromEntries(
    named.flatMap(({ path, value }) => (typeof value === 'string' ? [[path, textDigest(value)]] : [])),
  );
}

/** A text file as it is told apart from others: by its digest, or by its path where there is none. */
export function countedText(file: unknown, digest: string | null): unknown {
  if (typeof file !== 'string') return file;
  return digest === null ? { unread: file } : { sha256: digest };
}

/** A text file for a person. */
export function describeText(file: unknown, digest: string | null): unknown {
  if (typeof file !== 'string') return file;
  return `${file} (${digest === null ? 'not readable' : `text ${digest.slice(0, 12)}`})`;
}
