import { mkdirSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { afterEach, expect, it, vi } from 'vitest';
import { ConfigError } from '../../src/core/errors.js';
import { libraryFolder } from '../../src/core/files.js';
import { externalVariables, importClosure, LIBRARY_PATH, VARIABLE_PREFIX } from '../../src/config/jsonnet.js';
import { evaluate } from '../../src/config/load.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('library');

afterEach(() => vi.unstubAllEnvs());

function folderWith(files: Readonly<Record<string, string>>): string {
  const folder = newFolder();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

it('finds a shipped config from any folder', async () => {
  const file = join(folderWith({ 'mine.jsonnet': "import 'editrl/lib/rl.libsonnet'" }), 'mine.jsonnet');
  expect((await evaluate({ file, env: {} })).value).toMatchObject({ num_iterations: 2000 });
  expect([...importClosure([file]).keys()]).toContain(join(libraryFolder(), 'editrl', 'lib', 'rl.libsonnet'));
});

it('searches EDITRL_JPATH in its order, after the folder of the file that imports', async () => {
  const mine = folderWith({
    'mine.jsonnet': "{ a: import 'a.libsonnet', b: import 'b.libsonnet', c: import 'c.libsonnet' }",
  });
  const [first, second] = [
    folderWith({ 'a.libsonnet': "'first'", 'b.libsonnet': "'first'" }),
    folderWith({ 'b.libsonnet': "'second'", 'c.libsonnet': "'second'" }),
  ];
  writeFileSync(join(mine, 'a.libsonnet'), "'beside'");
  vi.stubEnv(LIBRARY_PATH, [first, second].join(delimiter));
  const { value, sources } = await evaluate({ file: join(mine, 'mine.jsonnet'), env: {} });
  expect(value).toEqual({ a: 'beside', b: 'first', c: 'second' });
  expect([...sources.keys()]).toEqual([
    join(mine, 'mine.jsonnet'),
    join(mine, 'a.libsonnet'),
    join(first, 'b.libsonnet'),
    join(second, 'c.libsonnet'),
  ]);
});

it('reports an import that is in none of the folders', async () => {
  vi.stubEnv(LIBRARY_PATH, newFolder());
  const file = join(folderWith({ 'mine.jsonnet': "import 'lost.libsonnet'" }), 'mine.jsonnet');
  await expect(evaluate({ file, env: {} })).rejects.toThrow(ConfigError);
});

it('takes a variable of -V over one of the environment', () => {
  const environment = {
    [`${VARIABLE_PREFIX}APP__DATA_DIR`]: 'given',
    APP__DATA_DIR: 'exported',
    [`${VARIABLE_PREFIX}size`]: '',
  };
  expect(externalVariables('a.jsonnet', environment)).toMatchObject({ APP__DATA_DIR: 'given', size: '' });
});
