/**
 * `npm run mutate -- FILES`: puts every mutation that Stryker knows into the given sources, one at a time, and reports which of them the
 * fast tests notice. FILES are whole files of `src/` and, optionally, files of `test/`, which replace the default: the tests of the folders that
 * mirror the sources. Exits with 1 if less than 85 % are noticed.
 */
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Stryker } from '@stryker-mutator/core';
import { UsageError } from '../../src/core/errors.js';

const given = process.argv.slice(2);
const sources = given.filter((file) => /^src\/.+\.ts$/.test(file));
const tests = given.filter((file) => /^test\/.+\.test\.ts$/.test(file));
const wrong = given.find((file) => (!sources.includes(file) && !tests.includes(file)) || !existsSync(file));
if (sources.length === 0 || wrong !== undefined) {
  const found = wrong === undefined ? 'no source' : `'${wrong}'`;
  const next = 'npm run mutate -- src/core/log.ts src/run/claim/lock.ts';
  console.error(
    new UsageError(`found ${found}; allowed: files of src/, and tests of test/, by their paths`, { next }).toText(),
  );
  process.exitCode = 2;
} else {
  const folders = new Set(sources.map((file) => file.split('/')[1]));
  const mirroring = [...folders].map((folder) => `test/${folder}/**/!(*.slow).test.ts`);
  process.env['MUTATE_TESTS'] = JSON.stringify(tests.length > 0 ? tests : mirroring);
  await new Stryker({
    mutate: sources,
    testRunner: 'vitest',
    vitest: { configFile: 'vitest.mutate.config.ts', related: false },
    coverageAnalysis: 'perTest',
    // Far more than any test needs: on a busy machine, a slow test must not count as an endless one.
    timeoutMS: 30_000,
    concurrency: 2,
    ignorePatterns: ['dist', 'runs', 'data', 'reports'],
    tempDirName: join(tmpdir(), `editrl-mutate-${process.pid}`),
    cleanTempDir: 'always',
    reporters: ['clear-text', 'progress-append-only'],
    clearTextReporter: { allowColor: false, reportTests: false, logTests: false },
    thresholds: { high: 95, low: 85, break: 85 },
    disableTypeChecks: true,
    checkers: [],
  }).runMutationTest();
}
