/** Copies the shipped configs to dist/library/editrl, where every Jsonnet file finds them as `import 'editrl/…'`. */
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { libraryFolder, projectRoot } from '../src/core/files.js';

/** Replaces the copy that is there. */
export function copyLibrary(): void {
  const target = join(libraryFolder(), 'editrl');
  rmSync(target, { recursive: true, force: true });
  cpSync(join(projectRoot(), 'configs'), target, { recursive: true });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) copyLibrary();
