/**
 * The tests that `npm run mutate` and `npm run mutate:pairs` name, each file with modules of its own: a mistake in what a module does when it
 * is loaded is noticed only in a module that is loaded with it. Stryker's own `testFiles` puts mistakes in after the modules were loaded.
 */
import { defineConfig } from 'vitest/config';
import { withMistake, type Pair } from './scripts/mutate/pair.js';
import { inScratch, limits, sources } from './vitest.config.js';

/** Puts the mistake of `npm run mutate:pairs` into its source as it is read; the file itself stays as it is. */
const given = process.env['MUTATE_PAIR'];
const pair = given === undefined ? null : (JSON.parse(given) as Pair);

export default defineConfig({
  resolve: sources,
  plugins: [
    {
      name: 'one-mistake',
      enforce: 'pre',
      transform: (source, id) => (id === pair?.file ? withMistake(source, pair) : null),
    },
  ],
  test: { ...limits, ...inScratch, include: JSON.parse(process.env['MUTATE_TESTS'] ?? '[]') as string[] },
});
