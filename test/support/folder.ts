/** Folders of tests, removed when the file that made them is through. */
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';

/** A folder for the tests of a file or a suite. Call it where `afterAll` may be called, not inside a test. */
export function testFolder(name: string): string {
  const folder = mkdtempSync(join(tmpdir(), `editrl-${name}-`));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Makes an empty folder at each call, inside and outside of tests; all go when the file is through. */
export function testFolders(name: string): () => string {
  const parent = testFolder(name);
  let made = 0;
  return () => {
    const folder = join(parent, String((made += 1)));
    mkdirSync(folder);
    return folder;
  };
}
