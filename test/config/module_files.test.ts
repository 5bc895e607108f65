import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadExperiment } from '../../src/config/experiment/load.js';
import { diffSettings, textDigests } from '../../src/config/hash.js';
import { loadConfig, type LoadedConfig } from '../../src/config/load.js';
import { placeModules } from '../../src/config/references.js';
import { rewardOf } from '../../src/recipes/settings.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('module-files');

function write(folder: string, files: Readonly<Record<string, string>>): string {
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

const module = 'export default () => 1;';
const lib = join(process.cwd(), 'configs');
/** A config whose reward is one module, or several. */
const config = (...terms: string[]): string =>
  `(import '${lib}/sft_s__rl_s.jsonnet') + (import '${lib}/lib/tiny.libsonnet') + { reward+: { terms: [${terms.join(', ')}] } }`;
const term = (path: string, rest = 'weight: 1'): string => `{ name: 'module', module: '${path}', ${rest} }`;

function modules({ settings }: Pick<LoadedConfig, 'settings'>): string[] {
  return (rewardOf(settings)?.terms ?? []).flatMap((one) => (one.name === 'module' ? [one.module] : []));
}

describe('the modules of a reward', () => {
  it('lie beside the config that names them, wherever the command is called', async () => {
    const folder = write(newFolder(), {
      'a/own.jsonnet': config(term('../rewards/mine.js')),
      'rewards/mine.js': module,
    });
    const file = relative(process.cwd(), join(folder, 'a/own.jsonnet'));
    expect(modules(await loadConfig({ file }))).toEqual([join(folder, 'rewards/mine.js')]);
  });

  it('lie beside an overlay or an import that says so, and the config goes before these', () => {
    const folder = write(newFolder(), {
      'a/own.js': '',
      'b/own.js': '',
      'b/other.js': '',
      'c/own.js': '',
      'c/d.js': '',
    });
    const [a, b, c] = ['a', 'b', 'c'].map((name) => join(folder, name));
    const place = (path: unknown, folders: readonly string[]) => {
      const { value, problems } = placeModules(
        { reward: { mode: null, terms: [{ name: 'module', module: path }] } },
        folders,
      );
      const [placed] = (value['reward'] as { terms: { module: unknown }[] }).terms;
      return problems.length > 0 ? problems : placed.module;
    };
    expect(place('./own.js', [a, b, c])).toBe(join(a, 'own.js'));
    expect(place('other.js', [a, b, c])).toBe(join(b, 'other.js'));
    expect(place(join(c, 'd.js'), [a])).toBe(join(c, 'd.js'));
    expect(place('own.js', [folder, b, c])).toMatchObject([
      {
        key: 'reward.terms.0.module',
        message: expect.stringMatching(/may be any of .*b\/own\.js, .*c\/own\.js; allowed/) as string,
      },
    ]);
    expect(place('../b', [a])).toMatchObject([{ message: expect.stringContaining('there is no such file') as string }]);
    expect(place(5, [a])).toBe(5);
  });

  it('are named where they are missing, of a wrong kind, or called alike', async () => {
    const folder = write(newFolder(), {
      'gone.jsonnet': config(term('gone.js')),
      'typed.jsonnet': config(term('mine.ts')),
      'twice.jsonnet': config(term('mine.js', 'weight: 0.5'), term('x/mine.js', 'weight: 0.5')),
      'bare.jsonnet': `(import '${lib}/sft_s__rl_s.jsonnet') + { reward+: { mode: 'module' } }`,
      'mine.ts': module,
      'mine.js': module,
      'x/mine.js': module,
    });
    const load = (name: string) => loadConfig({ file: join(folder, name) });
    await expect(load('gone.jsonnet')).rejects.toThrow(
      /reward\.terms\.0\.module: found 'gone\.js', but there is no such file \(looked in .*\); allowed: an ES module \(\.js or \.mjs\), relative to the config/,
    );
    await expect(load('typed.jsonnet')).rejects.toThrow(
      /reward\.terms\.0\.module: found '.*mine\.ts'; allowed: .*compile it/,
    );
    await expect(load('twice.jsonnet')).rejects.toThrow(
      /reward\.terms\.1\.module: .*'mine', like those of reward\.terms\.0; allowed/,
    );
    await expect(load('bare.jsonnet')).rejects.toThrow(
      /reward\.mode: found 'module', which needs module; write it as reward\.terms/,
    );
  });

  it('count by what they and their imports say, and their settings count', async () => {
    const files = {
      'own.jsonnet': config(term('mine.js')),
      'mine.js': "export * from './part.js'; export default () => 1;",
      'part.js': '',
    };
    const [here, there] = [write(newFolder(), files), write(newFolder(), files)];
    const load = (folder: string, ...sets: string[]) => loadConfig({ file: join(folder, 'own.jsonnet'), sets });
    const before = await load(here);
    const digests = textDigests(before.settings);
    expect(Object.keys(digests)).toEqual(['reward.terms.0.module']);
    expect((await load(there)).resultHash).toBe(before.resultHash);
    expect((await load(here, 'reward.terms.0.settings={"a":1}')).resultHash).not.toBe(before.resultHash);
    expect((await load(here, 'reward.terms.0.timeout_s=5')).resultHash).toBe(before.resultHash);
    writeFileSync(join(here, 'part.js'), 'export const changed = 1;');
    const after = await load(here);
    expect(after.resultHash).not.toBe(before.resultHash);
    expect(diffSettings(before.settings, after.settings, digests)).toMatchObject([
      {
        key: 'reward.terms.0.module',
        before: `${join(here, 'mine.js')} (module ${digests['reward.terms.0.module']?.slice(0, 12)})`,
      },
    ]);
  });

  it('may be an axis of an experiment', async () => {
    const folder = write(newFolder(), {
      'own.jsonnet': config(term('../one.js')),
      'one.js': module,
      'two.js': 'export default () => 0;',
    });
    mkdirSync(join(folder, 'in'));
    writeFileSync(join(folder, 'in/own.jsonnet'), config(term('../one.js')));
    writeFileSync(
      join(folder, 'in/matrix.jsonnet'),
      `{ base: import 'own.jsonnet', axes: { reward: { one: {}, two: { reward+: { terms: [${term('../two.js')}] } } } } }`,
    );
    const { cells } = await loadExperiment({ file: join(folder, 'in/matrix.jsonnet') });
    expect(cells.map(({ config: cell }) => modules(cell))).toEqual([
      [join(folder, 'one.js')],
      [join(folder, 'two.js')],
    ]);
    expect(cells[0].config.resultHash).not.toBe(cells[1].config.resultHash);
  });
});
