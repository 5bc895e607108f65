/**
 * Writes docs/reference/cli.md from the verbs.
 *
 *   npm run build && node dist/scripts/cli.js
 */
import { join } from 'node:path';
import { format } from 'prettier';
import { writeFileAtomic } from '../src/core/files.js';
import { cliPage } from './cli_page.js';

writeFileAtomic(join('docs', 'reference', 'cli.md'), await format(await cliPage(), { parser: 'markdown' }));
