/**
 * Writes docs/reference/coverage.md from the tables of the code, and from the comparisons that tests write with
 * EDITRL_RECORD=docs/reference/agreement.json EDITRL_TEST_PYTHON=… npx vitest run --project slow agreement vision
 *
 *   npm run build && node dist/scripts/coverage.js
 */
import { join } from 'node:path';
import { format } from 'prettier';
import { writeFileAtomic } from '../src/core/files.js';
import type { Agreements } from '../src/launch/agreement.js';
import { coveragePage } from '../src/launch/coverage.js';
import { readJson } from '../src/models/files.js';

const compared = readJson(join('docs', 'reference', 'agreement.json')) as Agreements;
writeFileAtomic(join('docs', 'reference', 'coverage.md'), await format(coveragePage(compared), { parser: 'markdown' }));
