import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { makeFolder } from '../../src/core/files.js';

const home = process.cwd();
const folder = mkdtempSync(join(tmpdir(), 'editrl-removed-'));

afterEach(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});

describe('a folder below a working directory that was removed', () => {
  it('is made, where Node by itself would never return', () => {
    process.chdir(folder);
    expect(process.cwd()).toBe(folder);
    rmSync(folder, { recursive: true });
    makeFolder('runs/one');
    expect(existsSync(join(folder, 'runs', 'one'))).toBe(true);
  });
});
