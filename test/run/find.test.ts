import { mkdirSync, writeFileSync } from 'node:fs';
import { join, relative, resolve } from 'node:path';
import { expect, it } from 'vitest';
import { findRun } from '../../src/run/find.js';
import { testFolder } from '../support/folder.js';

const folder = testFolder('find');
for (const name of ['lower_kl', 'no_kl']) {
  mkdirSync(join(folder, name));
  writeFileSync(join(folder, name, 'run.json'), '{}');
}
mkdirSync(join(folder, 'empty'));

it('finds a run by its name or its folder, as a shell completes it', () => {
  const dir = join(folder, 'no_kl');
  expect(findRun('no_kl', folder).dir).toBe(dir);
  for (const path of [dir, `${dir}/`, relative('.', dir), join(folder, '.', 'empty', '..', 'no_kl')]) {
    const found = findRun(path, 'elsewhere');
    expect([found.runName, resolve(found.dir)]).toEqual(['no_kl', dir]);
  }
});

it('reports what there is instead', () => {
  expect(() => findRun(`${folder}/empty/`)).toThrow('no run in this folder');
  expect(() => findRun('no kl', folder)).toThrow("'no kl' is not a valid run name");
  const next = (name: string): unknown => {
    try {
      return findRun(name, folder);
    } catch (error) {
      return (error as { next?: unknown }).next;
    }
  };
  expect(next('lowr_kl')).toBe("Did you mean 'lower_kl'? Choose another directory with --exp-dir.");
  expect(next('something')).toBe('Runs: lower_kl, no_kl. Choose another directory with --exp-dir.');
});
