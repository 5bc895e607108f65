import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { format } from 'prettier';
import { expect, it } from 'vitest';
import { cliPage } from '../../scripts/cli_page.js';

it('docs/reference/cli.md is what help prints: npm run build && node dist/scripts/cli.js', async () => {
  const page = join(import.meta.dirname, '../../docs/reference/cli.md');
  expect(readFileSync(page, 'utf8')).toBe(await format(await cliPage(), { parser: 'markdown' }));
});
