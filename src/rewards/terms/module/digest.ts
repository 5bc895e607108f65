/** A digest of the files of a reward module. */
import { readFileSync, statSync } from 'node:fs';
import { dirname, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
// The lexer that Vite and webpack use to find imports. This build of it needs no asynchronous start, so settings can be hashed
// synchronously.
import { parse } from 'es-module-lexer/js';
import { sha256 } from '../../../core/images/image.js';

/**
 * SHA-256 over a module's file and the files that it reaches by relative imports, with their paths relative to it. Packages, computed
 * imports and `require` are not included. Null if the module is no file that can be read.
 */
export function moduleDigest(file: string): string | null {
  const digests = new Map<string, string>();
  visit(file, digests);
  if (digests.get(file) === MISSING) return null; // The code that imports the module reports it.
  const placed = [...digests].map(([path, digest]) => `${relative(dirname(file), path)} ${digest}`);
  return sha256(placed.slice(1).sort().join('\n') + digests.get(file)!);
}

const MISSING = 'missing';

function visit(path: string, digests: Map<string, string>): void {
  if (digests.has(path)) return;
  // Reading a pipe or a device may never end.
  const bytes = isFile(path) ? readFileSync(path) : null;
  digests.set(path, bytes === null ? MISSING : sha256(bytes));
  if (bytes === null) return;
  for (const name of importsOf(bytes.toString('utf8'))) {
    if (/^\.{1,2}\//.test(name)) {
      visit(fileURLToPath(new URL(name.replace(/[?#].*$/, ''), pathToFileURL(path))), digests);
    }
  }
}

/** Whether a path is a plain file, or a link to one. */
function isFile(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isFile() === true;
}

/** Imports with a literal name in a text. None if it does not parse. */
function importsOf(text: string): string[] {
  try {
    return parse(text)[0].flatMap(({ n }) => n ?? []);
  } catch {
    return []; // Data, or a script whose error the import reports.
  }
}
