import { defineConfig } from 'vitest/config';
import { scratch } from './test/support/scratch.js';

const e2e = 'test/e2e/**/*.test.ts';
/** Recipes with one short run in `npm test`. */
export const RECIPES = [
  'image_edit_tokens',
  'image_editor',
  'edit_response',
  'ip_adapter',
  'prompt_enhance',
  'text_answers',
  'video_actions',
];
const mocks = 'test/**/*.mocks.test.ts';
const slow = 'test/**/*.slow.test.ts';
export const inScratch = {
  globalSetup: ['test/support/scratch.ts', 'test/support/programs.ts'],
  setupFiles: ['src/recipes/settings.ts'],
  env: { TMPDIR: scratch },
};

/** Of the fast tests many wait for a clock: more of them than processors, where nothing else runs beside. */
const maxWorkers = Number(process.env['EDITRL_TEST_WORKERS'] ?? 2);
export const limits = { testTimeout: 60_000, hookTimeout: 120_000, pool: 'forks', maxWorkers } as const;

export default defineConfig({
  test: {
    ...limits,
    projects: [
      {
        extends: true,
        test: {
          name: 'unit',
          ...inScratch,
          include: ['test/**/*.test.ts'],
          exclude: [e2e, mocks, slow],
          // Files share a process and its modules: loading these again for each file takes longer than most files' tests.
          isolate: false,
        },
      },
      // Files that replace a module need modules of their own.
      { extends: true, test: { name: 'unit-mocks', ...inScratch, include: [mocks], exclude: [e2e] } },
      { extends: true, test: { name: 'slow', ...inScratch, include: [slow], exclude: [e2e], testTimeout: 240_000 } },
      // One short run of each recipe.
      {
        extends: true,
        test: {
          name: 'recipes',
          include: RECIPES.map((name) => `test/e2e/recipes/${name}.test.ts`),
          env: { EDITRL_CONTRACT: 'run' },
          globalSetup: 'test/e2e/setup.ts',
          testTimeout: 180_000,
        },
      },
      // Its set-up builds dist/ and trains a chain of runs that the tests begin with.
      {
        extends: true,
        test: {
          name: 'e2e',
          include: [e2e],
          globalSetup: 'test/e2e/setup.ts',
          testTimeout: 180_000,
          expect: { poll: { timeout: 20_000 } },
        },
      },
    ],
  },
});
