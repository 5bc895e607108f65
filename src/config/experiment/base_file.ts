/** The config that an experiment's file imports as its base: Jsonnet gives an imported value no name, so it is read from the text. */
import { dirname, resolve } from 'node:path';

/** A field `base` (in quotation marks or without) whose value begins with an import; comments go first. */
const COMMENTS = /\/\*[\s\S]*?\*\/|(?:^|\s)(?:\/\/|#).*$/gm;
const BASE = /(?:^|[\s{,;])(['"]?)base\1\s*:\s*\(?\s*import\s*@?(['"])(.+?)\2/;

/** Its absolute path, of an experiment's file and text; null where the text imports none in this way. */
export function importedBase(file: string, text: string): string | null {
  const found = BASE.exec(text.replace(COMMENTS, ''));
  return found === null ? null : resolve(dirname(file), found[3]);
}
