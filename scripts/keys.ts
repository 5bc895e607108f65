/**
 * Writes docs/reference/keys.md from the schema.
 *
 *   npm run build && node dist/scripts/keys.js
 */
import { join } from 'node:path';
import { format } from 'prettier';
import { writeFileAtomic } from '../src/core/files.js';
import '../src/recipes/settings.js';
import { keysPage } from './keys_page.js';

writeFileAtomic(join('docs', 'reference', 'keys.md'), await format(keysPage(), { parser: 'markdown' }));
