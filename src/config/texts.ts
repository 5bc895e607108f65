/** Text files and modules that settings name: their content decides a result, so it is recorded by digest. */
import { readFileSync } from 'node:fs';
import { sha256 } from '../core/image.js';
import type { Mark } from '../schema/mark.js';
import type { RunSettings } from '../schema/run.js';
import { leaves } from '../schema/walk.js';
import { recipeOf, rewardForms } from './recipes.js';

export type FileKind = NonNullable<Mark['file']>;

/** Digests of files by the dotted paths of the settings that name them; null for one that could not be read. */
export type TextDigests = Readonly<Record<string, string | null>>;

/** SHA-256 of a file's content, in hexadecimal; null if it cannot be read, which the code that needs the file reports. */
export function fileDigest(kind: FileKind, file: string): string | null {
  return kind === 'text' ? textDigest(file) : rewardForms().moduleDigest(file);
}

/** Digest of the text without surrounding white space. */
function textDigest(file: string): string | null {
  try {
    return sha256(Buffer.from(readFileSync(file, 'utf8').trim()));
  } catch {
    return null;
  }
}

/** The digests of all files that settings name, as they are now. */
export function textDigests(settings: RunSettings): TextDigests {
  return Object.fromEntries(
    leaves(recipeOf(settings).schema, settings).flatMap(({ path, value, mark }) =>
      mark.file !== undefined && typeof value === 'string' ? [[path, fileDigest(mark.file, value)]] : [],
    ),
  );
}

/** Identifies a file by its digest, or by its path if there is none. */
export function countedText(file: unknown, digest: string | null): unknown {
  if (typeof file !== 'string') return file;
  return digest === null ? { unread: file } : { sha256: digest };
}

/** Describes a file for people. */
export function describeText(kind: FileKind, file: unknown, digest: string | null): unknown {
  if (typeof file !== 'string') return file;
  return `${file} (${digest === null ? 'not readable' : `${kind} ${digest.slice(0, 12)}`})`;
}
