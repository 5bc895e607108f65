/** The page about policies of published sizes: what it says follows from the estimates of today. */
import { existsSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { SEEDS, type Seed } from '../../scripts/bench/real_seeds.js';
import { realSizesPage } from '../../scripts/bench/real_sizes.js';

const page = readFileSync('experiments/results/real_sizes.md', 'utf8');

it('is what the command says today: npm run bench -- real-sizes', async () => {
  const few = SEEDS.filter(({ name }) => /EARL|render|FLUX/.test(name));
  const rows = (await realSizesPage(few)).split('\n').filter((line) => few.some(({ name }) => line.includes(name)));
  expect(rows).toHaveLength(2 * few.length);
  for (const row of rows) expect(page.split('\n')).toContain(row);
});

it('has every seed, and names tests that are there', () => {
  for (const { name, twins } of SEEDS) {
    expect(page).toContain(`| ${name} |`);
    for (const file of Object.values<Seed['twins'][keyof Seed['twins']]>(twins)) {
      if (file !== null) expect(existsSync(file), file).toBe(true);
    }
  }
});
