/**
 * Writes docs/reference/coverage.md from the tables of the code.
 *
 *   npm run build && node dist/scripts/coverage.js
 */
import { join } from 'node:path';
import { format } from 'prettier';
import { writeFileAtomic } from '../src/core/files.js';
import { coveragePage } from '../src/launch/coverage.js';

writeFileAtomic(join('docs', 'reference', 'coverage.md'), await format(coveragePage(), { parser: 'markdown' }));
