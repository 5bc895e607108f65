import { chmodSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { findRun, listRuns } from '../../src/run/find.js';
import { readStatus } from '../../src/run/status.js';
import { testFolder } from '../support/folder.js';

/** Root may enter any folder. */
const skipped = process.getuid?.() === 0;

it.skipIf(skipped)('lists a run whose folder may not be entered, as unreadable', () => {
  const base = testFolder('closed');
  mkdirSync(join(base, 'closed'));
  writeFileSync(join(base, 'closed/run.json'), '{}');
  chmodSync(join(base, 'closed'), 0);
  try {
    const [run] = listRuns([base]);
    expect(run.runName).toBe('closed');
    expect(findRun('closed', base).runName).toBe('closed');
    expect(readStatus(run)).toMatchObject({ state: 'unreadable', reason: expect.stringContaining('EACCES') as string });
  } finally {
    chmodSync(join(base, 'closed'), 0o700);
  }
});
