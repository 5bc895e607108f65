/** Where the configs of parents are found. */
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { loadExperiment } from '../../src/config/experiment/load.js';
import { loadConfig, loadReferenced } from '../../src/config/load.js';
import { dependencies } from '../../src/config/models.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('references');
const configs = join(process.cwd(), 'configs');

function folderWith(files: Readonly<Record<string, string>>): string {
  const folder = newFolder();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

async function parentsOf(file: string, overlays: readonly string[] = []): Promise<string[]> {
  const config = await loadConfig({ file, overlays, env: {} });
  const needed = dependencies(config.settings);
  const loaded = await Promise.all(needed.map((reference) => loadReferenced(config, reference, {})));
  const { parents } = await loadExperiment({ file, overlays, env: {} });
  expect(parents.map(({ run_name }) => run_name)).toEqual(expect.arrayContaining(needed.map(({ run }) => run)));
  return loaded.map(({ file: path }) => path);
}

it('finds parents of a config outside the clone that imports a shipped one', async () => {
  const folder = folderWith({
    'own.jsonnet': `(import '${configs}/sft_s__rl_s.jsonnet') + { seed: 3 }`,
    'text.jsonnet': `(import '${configs}/text_plain.jsonnet') + (import '${configs}/lib/text_tiny.libsonnet') + { seed: 3 }`,
  });
  const tiny = ['configs/lib/tiny.libsonnet'];
  expect(await parentsOf(join(folder, 'own.jsonnet'), tiny)).toEqual([
    'configs/tiny_vq.jsonnet',
    'configs/sft_s.jsonnet',
  ]);
  expect(await parentsOf(join(folder, 'text.jsonnet'))).toEqual(['configs/text_start.jsonnet']);
});

it('takes the file that names a parent before one of the same name beside the config', async () => {
  const start = (seed: number): string => `(import '${configs}/text_start.jsonnet') + { seed: ${seed} }`;
  const folder = folderWith({
    'base/run.jsonnet': `(import '${configs}/text_plain.jsonnet') + { policy+: { model: { run: 'start', config: 'start.jsonnet' } } }`,
    'base/start.jsonnet': start(1),
    'start.jsonnet': start(2),
    'own.jsonnet': "(import 'base/run.jsonnet') + { seed: 3 }",
    'naming.jsonnet': "(import 'base/run.jsonnet') + { policy+: { model: { run: 'start', config: 'start.jsonnet' } } }",
  });
  expect(await parentsOf(join(folder, 'own.jsonnet'))).toEqual([join(folder, 'base/start.jsonnet')]);
  expect(await parentsOf(join(folder, 'naming.jsonnet'))).toEqual([join(folder, 'start.jsonnet')]);
});

it('names the key and the referrer of a parent that is missing', async () => {
  const folder = folderWith({
    'own.jsonnet': `(import '${configs}/text_plain.jsonnet') + { policy+: { model: { run: 'start', config: 'lost.jsonnet' } } }`,
  });
  const file = join(folder, 'own.jsonnet');
  const error = {
    message: expect.stringContaining("policy.model.config: found 'lost.jsonnet'") as string,
    where: file,
  };
  const config = await loadConfig({ file, env: {} });
  await expect(loadReferenced(config, dependencies(config.settings)[0], {})).rejects.toMatchObject(error);
  await expect(loadExperiment({ file, env: {} })).rejects.toMatchObject(error);
});

it('rejects a path that may be either of two configs', async () => {
  const model = "{ policy+: { model: { run: 'start', config: 'start.jsonnet' } } }";
  const folder = folderWith({
    'own.jsonnet': `(import '${configs}/text_plain.jsonnet') + (import 'a/part.libsonnet') + (import 'b/part.libsonnet')`,
    'a/part.libsonnet': model,
    'b/part.libsonnet': model,
    'a/start.jsonnet': '{}',
    'b/start.jsonnet': '{}',
  });
  await expect(loadConfig({ file: join(folder, 'own.jsonnet'), env: {} })).rejects.toThrow('which may be any of');
});
