/** Copies the shipped configs to dist/library/editrl, where every Jsonnet file finds them as `import 'editrl/…'`. */
import { cpSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { libraryFolder } from '../src/core/files.js';

rmSync(libraryFolder(), { recursive: true, force: true });
cpSync('configs', join(libraryFolder(), 'editrl'), { recursive: true });
