import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { format } from 'prettier';
import { expect, it } from 'vitest';
import { keysPage } from '../../scripts/keys_page.js';
import { recipes } from '../../src/recipes/settings.js';
import { knownPaths } from '../../src/core/schema/walk.js';

it('docs/reference/keys.md is what the schema says: npm run build && node dist/scripts/keys.js', async () => {
  const page = join(import.meta.dirname, '../../docs/reference/keys.md');
  expect(readFileSync(page, 'utf8')).toBe(await format(keysPage(), { parser: 'markdown' }));
});

it('names every key that a message may name', () => {
  const named = new Set([...keysPage().matchAll(/^- `([^`]+)`/gm)].map(([, key]) => key));
  for (const { name, schema } of Object.values(recipes)) {
    const missing = [...knownPaths(schema)].filter(
      (path) => !named.has(path) && !path.startsWith('validation.measure[]'),
    );
    expect(missing, name).toEqual([]);
  }
  expect(named).toContain('algorithm.advantage.scope');
  expect(named).toContain('reward.terms[].max_kb');
});

it('has no key that may be set by itself without a meaning', () => {
  const unnamed = [...keysPage().matchAll(/^- `([^`]+)`: (?:Part of `[^`]+`\.)? ?\((?:result|operation)/gm)];
  expect(unnamed.map(([, key]) => key)).toEqual([]);
  expect(keysPage()).toContain('- `algorithm.train_tokens.steps`: Part of `algorithm.train_tokens`.');
});
