/**
 * The tests that `npm run mutate` names, each file with modules of its own: a mistake in what a module does when it
 * is loaded is noticed only in a module that is loaded with it. Stryker's own `testFiles` puts mistakes in after the modules were loaded.
 */
import { defineConfig } from 'vitest/config';
import { inScratch, limits } from './vitest.config.js';

export default defineConfig({
  test: { ...limits, ...inScratch, include: JSON.parse(process.env['MUTATE_TESTS'] ?? '[]') as string[] },
});
