import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadExperiment } from '../../src/config/experiment/load.js';
import { readJsonnet } from '../../src/config/jsonnet_text.js';
import { loadConfig, originsOf } from '../../src/config/load.js';
import { EditrlError } from '../../src/core/errors.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('origin');

const own = `// optimizer: { learning_rate: 1 }
local unused = { learning_rate: 2, prompts: 3 };
(import 'lib.libsonnet') + {
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: 'runs',
  lr:: 1e-3,
  optimizer+: { learning_rate: $.lr },
}
`;
const lib = `{
  task: 'image_tokenizer',
  num_iterations: 10,
  environment: { init: { codebook_size: 16, patch: 8 } },
  validation: { prompts: 8 },
  data: { dir: 'data', train: [{ path: 'a' }], validation: [{ path: 'b' }] },
  optimizer: { learning_rate: 1e-4 },
}
`;

/** Writes files and gives their folder. */
function folderWith(files: Readonly<Record<string, string>>): string {
  const folder = newFolder();
  for (const [name, text] of Object.entries({ 'own.jsonnet': own, 'lib.libsonnet': lib, ...files })) {
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

async function messageOf(loading: Promise<unknown>, folder: string): Promise<string> {
  try {
    await loading;
  } catch (error) {
    if (error instanceof EditrlError) return error.toText().replaceAll(`${folder}/`, '');
    throw error;
  }
  return 'nothing was raised';
}

describe('a wrong value', () => {
  // The files beside the config, the overlay, and what the message says of where the value comes from.
  it.each([
    ['in the file', { 'own.jsonnet': own.replace('1e-3', '-1') }, null, '(own.jsonnet:7) optimizer.learning_rate'],
    [
      'in the file, by another name',
      { 'own.jsonnet': own.replace("'runs'", '7') },
      null,
      '(own.jsonnet:5) base_exp_dir',
    ],
    [
      'in a library',
      { 'lib.libsonnet': lib.replace('prompts: 8', 'prompts: 0') },
      null,
      '(lib.libsonnet:5) validation.prompts',
    ],
    ['in a list', { 'lib.libsonnet': lib.replace("'b'", '3') }, null, '(lib.libsonnet:6) data.validation.0.path'],
    [
      'in an overlay',
      {},
      '{\n  optimizer+: {\n    learning_rate: -1 } }',
      '(mine.libsonnet:3) optimizer.learning_rate',
    ],
    ['in a quoted key', {}, "{ optimizer+: { 'learning_rate': -1 } }", '(mine.libsonnet:1) optimizer.learning_rate'],
    [
      'in a computed key',
      {},
      "{ optimizer+: { ['learning_' + 'rate']: -1 } }",
      '(mine.libsonnet) optimizer.learning_rate',
    ],
    ['in an overlay, through the file', {}, '{ lr:: -1 }', '(own.jsonnet:7) optimizer.learning_rate'],
    [
      "in an overlay's library",
      { 'two.libsonnet': '{\n  seed: -1 }' },
      "import 'two.libsonnet'",
      '(mine.libsonnet, two.libsonnet:2) seed',
    ],
    ['in two places', {}, '{ seed: -1 } +\n{ seed: -1 }', '(mine.libsonnet:1 or 2) seed'],
    ['that is unknown', {}, '{ optimizer+: { learning_rat: 1 } }', '(mine.libsonnet:1) optimizer.learning_rat:'],
  ])('%s is reported with its layer, and never with a wrong line', async (_, files, overlay, said) => {
    const folder = folderWith({ ...files, ...(overlay === null ? {} : { 'mine.libsonnet': overlay }) });
    const overlays = overlay === null ? [] : [join(folder, 'mine.libsonnet')];
    const message = await messageOf(loadConfig({ file: join(folder, 'own.jsonnet'), overlays, env: {} }), folder);
    expect(message).toContain(said);
  });

  it('of --set is reported as such, and what is missing with no place', async () => {
    const folder = folderWith({ 'lib.libsonnet': lib.replace('num_iterations: 10,', '') });
    const sets = ['optimizer.learning_rate=-1'];
    const message = await messageOf(loadConfig({ file: join(folder, 'own.jsonnet'), sets, env: {} }), folder);
    expect(message).toContain('  (--set) optimizer.learning_rate');
    expect(message).toMatch(/^ {2}num_iterations: missing/m);
  });

  it('that an overlay needs is its own, where the file alone does not evaluate', async () => {
    const files = { 'own.jsonnet': own.replace('1e-3', "error 'give lr'"), 'mine.libsonnet': '{ lr:: -1 }' };
    const folder = folderWith(files);
    const overlays = [join(folder, 'mine.libsonnet')];
    const message = await messageOf(loadConfig({ file: join(folder, 'own.jsonnet'), overlays, env: {} }), folder);
    expect(message).toContain('(own.jsonnet:7) optimizer.learning_rate');
  });

  it.each([
    ['base', 'seed: 1', 'axes: { a: { x: {}, y: {} } }, base+: {\nseed: -1 }', '(e.jsonnet:5) seed'],
    ['axis value', 'seed: 1', 'axes: { a: { x: {}, y: { seed: -1 } } }', "(axis a 'y', e.jsonnet:4) seed"],
    [
      'override',
      'seed: 1',
      "axes: { a: { x: {}, y: {} } }, overrides: [{ cell: { a: 'y' }, set: { seed: -1 } }]",
      '(overrides[0], e.jsonnet:4) seed',
    ],
    [
      'base that an axis gives',
      'seed: 1',
      "base: 'b', axes: { b: { x: base + { seed: -1 } }, a: { y: {} } }",
      "(axis b 'x', e.jsonnet:4) seed",
    ],
    ['overlay', 'seed: 1', "with: ['mine.libsonnet'], axes: { a: { x: {}, y: {} } }", '(mine.libsonnet:1) seed'],
  ])('of an experiment, in its %s, is reported with its layer', async (_, given, text, said) => {
    const folder = folderWith({ 'mine.libsonnet': '{ seed: -1 }' });
    const file = join(folder, 'e.jsonnet');
    const base = `local base = (import '${resolve(folder, 'own.jsonnet')}') + { ${given} };\n\n`;
    writeFileSync(file, `${base}{ base: base } + {\n${text}\n}`);
    expect(await messageOf(loadExperiment({ file, env: {} }), folder)).toContain(`    ${said}: found -1`);
  });
});

it('config show names what set each value', async () => {
  const folder = folderWith({ 'mine.libsonnet': '{ validation+: { seed: 4 } }' });
  const request = {
    file: join(folder, 'own.jsonnet'),
    overlays: [join(folder, 'mine.libsonnet')],
    sets: ['seed=3'],
    env: {},
  };
  const keys = ['seed', 'validation.seed', 'validation.prompts', 'validation.temperature', 'optimizer.learning_rate'];
  const origins = (await originsOf(request, keys)).map((place) => place.replaceAll(`${folder}/`, ''));
  expect(origins).toEqual(['--set', 'mine.libsonnet:1', 'lib.libsonnet:5', 'default', 'own.jsonnet:7']);
});

it('config show names the flat keys of a flat file', async () => {
  const folder = newFolder();
  const file = join(folder, 'flat.jsonnet');
  const flat = readFileSync('test/config/fixtures/earl_flat.jsonnet', 'utf8');
  writeFileSync(file, flat);
  const [place] = await originsOf({ file, env: {} }, ['optimizer.learning_rate']);
  const line = flat.split('\n').findIndex((text) => /^\s*learning_rate/.test(text)) + 1;
  expect(place.replaceAll(`${folder}/`, '')).toBe(`flat.jsonnet:${line}`);
});

it('distinguishes fields from comments, texts and other words', () => {
  const text = `{ a: 1, // a: 2\n'a'+: 3, "a" :: 4, aa: 5, b: 'a: 6', c: $.a, /* a: 7 */ d: |||\n  a: 8\n|||, # a: 9\n e: x[a:2], assert a : 'm' }`;
  const { fields } = readJsonnet(text);
  expect(fields.map(({ name, at }) => [name, text[at]]).filter(([name]) => name === 'a')).toEqual([
    ['a', 'a'],
    ['a', "'"],
    ['a', '"'],
  ]);
});
