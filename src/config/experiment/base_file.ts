/**
 * The config that an experiment's file imports as its base: Jsonnet does not tell where an imported value comes from, so it is read from the text.
 */
import { dirname, resolve } from 'node:path';

/** A field `base` (quoted or not) whose value begins with an import; comments are removed first. */
const COMMENTS = /\/\*[\s\S]*?\*\/|(?:^|\s)(?:\/\/|#).*$/gm;
const BASE = /(?:^|[\s{,;])(['"]?)base\1\s*:\s*\(?\s*import\s*@?(['"])(.+?)\2/;

/** Its absolute path, from an experiment's file and text; null if the text imports none in this way. */
export function importedBase(file: string, text: string): string | null {
  const found = BASE.exec(text.replace(COMMENTS, ''));
  return found === null ? null : resolve(dirname(file), found[3]);
}
