import { defineConfig } from 'vitest/config';

const e2e = 'test/e2e/**/*.test.ts';

export default defineConfig({
  test: {
    testTimeout: 60_000,
    hookTimeout: 120_000,
    pool: 'forks',
    maxWorkers: 2,
    projects: [
      { extends: true, test: { name: 'unit', include: ['test/**/*.test.ts'], exclude: [e2e] } },
      // Its set-up builds dist/ and trains a chain of runs that the tests begin with.
      { extends: true, test: { name: 'e2e', include: [e2e], globalSetup: 'test/e2e/setup.ts', testTimeout: 180_000 } },
    ],
  },
});
