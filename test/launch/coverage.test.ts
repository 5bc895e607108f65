import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { format } from 'prettier';
import { expect, it } from 'vitest';
import { coverage, coveragePage } from '../../src/launch/coverage.js';
import type { Agreements } from '../../src/launch/agreement.js';
import { readArchitecture } from '../../src/compute/nets/decoder/architectures.js';
import { peftDefaults } from '../../src/models/adapters/peft_defaults.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('coverage');

it('docs/reference/coverage.md is what the tables of the code say', async () => {
  const folder = join(import.meta.dirname, '../../docs/reference');
  const compared = JSON.parse(readFileSync(join(folder, 'agreement.json'), 'utf8')) as Agreements;
  const page = await format(coveragePage(compared), { parser: 'markdown' });
  expect(readFileSync(join(folder, 'coverage.md'), 'utf8')).toBe(page);
  expect(Object.keys(compared).length).toBeGreaterThan(5);
  for (const { model_type, differences } of Object.values(compared)) {
    expect(coverage()[0].names).toContain(model_type);
    for (const [quantity, difference] of Object.entries(differences)) expect(difference, quantity).toBeLessThan(2e-5);
  }
});

it('names what is covered in every row, once', () => {
  for (const { what, names, refuses } of coverage()) {
    expect(names.length, what).toBeGreaterThan(0);
    expect(new Set(names).size, what).toBe(names.length);
    expect(refuses, what).not.toBe('');
  }
});

it('lists the model types that the message about a rejected config.json has', () => {
  const where = join(newFolder(), 'config.json');
  writeFileSync(where, '{}');
  const [{ names }] = coverage();
  expect(() => readArchitecture({ model_type: 'other' }, where)).toThrow(names.join(', '));
});

it('lists keys of adapters that peft has', () => {
  const row = coverage().find(({ what }) => what === 'adapters');
  const keys = [...(row?.refuses ?? '').matchAll(/`(\w+)`/g)].map(([, key]) => key);
  expect(keys).toContain('use_dora');
  for (const key of keys) expect(peftDefaults).toHaveProperty(key);
});
