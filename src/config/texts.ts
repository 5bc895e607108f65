/** Text files and modules that settings name: what they say decides a result, so it is kept by its digest. */
import { readFileSync } from 'node:fs';
import { sha256 } from '../core/image.js';
import { recipeOf } from '../recipes/settings.js';
import { moduleDigest } from '../rewards/terms/module/closure.js';
import type { Mark } from '../schema/mark.js';
import type { RunSettings } from '../schema/run.js';
import { leaves } from '../schema/walk.js';

export type FileKind = NonNullable<Mark['file']>;

/** Digests of files by the dotted paths of the settings that name them; null for one that could not be read. */
export type TextDigests = Readonly<Record<string, string | null>>;

const digests: Readonly<Record<FileKind, (file: string) => string | null>> = { text: textDigest, module: moduleDigest };

/** SHA-256 of what a file says, in hexadecimal; null when it cannot be read, which whoever needs the file reports. */
export function fileDigest(kind: FileKind, file: string): string | null {
  return digests[kind](file);
}

/** A digest of the text without the white space around it. */
function textDigest(file: string): string | null {
  try {
    return sha256(Buffer.from(readFileSync(file, 'utf8').trim()));
  } catch {
    return null;
  }
}

/** The digests of all files that settings name, as the files are at this moment. */
export function textDigests(settings: RunSettings): TextDigests {
  return Object.fromEntries(
    leaves(recipeOf(settings).schema, settings).flatMap(({ path, value, mark }) =>
      mark.file !== undefined && typeof value === 'string' ? [[path, fileDigest(mark.file, value)]] : [],
    ),
  );
}

/** A file as it is told apart from others: by its digest, or by its path where there is none. */
export function countedText(file: unknown, digest: string | null): unknown {
  if (typeof file !== 'string') return file;
  return digest === null ? { unread: file } : { sha256: digest };
}

/** A file for a person. */
export function describeText(kind: FileKind, file: unknown, digest: string | null): unknown {
  if (typeof file !== 'string') return file;
  return `${file} (${digest === null ? 'not readable' : `${kind} ${digest.slice(0, 12)}`})`;
}
