import { cpSync, mkdirSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { moduleDigest } from '../../../src/rewards/terms/module/closure.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('module-closure');

const files: Readonly<Record<string, string>> = {
  'reward.js': `import { score } from './lib/score.js?v=1'; import fs from 'node:fs'; import path from 'path'; import leaf from 'leaf/sub.js';
    // import './comment.js'
    const text = "import './string.js'"; import './old.cjs'; export * from '@scope/pack'; await import('./lazy.mjs'); await import(text); export default score;`,
  'lib/score.js': `import weights from '../weights.json' with { type: 'json' }; import '../reward.js'; export { score } from '#inner';`,
  'weights.json': '[1, 2]',
  'lazy.mjs': 'export {}',
  'inner.mjs': 'export const score = () => 1;',
  'package.json': JSON.stringify({ name: 'own', imports: { '#inner': './inner.mjs' } }),
  'old.cjs': `const { readFileSync } = require('fs'); require("./plain"); require.resolve('./resolved.txt'); module.exports = require('./folder');
    const other = require('other/deep'); require(\`./ticks.js\`); require('./a' + '/computed.js'); require('./code.txt');`,
  'plain.js': `import { createRequire as make } from 'node:module'; import module from 'node:module';
    const load = make(import.meta.url), again = module.createRequire(new URL('.', import.meta.url));
    load('./loaded.js'); again("./again.json"); module.createRequire(import.meta.url)('./at_once.js');`,
  'folder/package.json': JSON.stringify({ main: './main.js' }),
  'folder/main.js': 'exports.x = 1;',
  'resolved.txt': 'text',
  'ticks.js': '',
  'code.txt': "exports.z = require('./from_text.js');",
  'from_text.js': '',
  'loaded.js': '',
  'again.json': '{}',
  'at_once.js': '',
  'a/computed.js': '',
  'node_modules/other/package.json': JSON.stringify({ version: '3.0.0' }),
  'comment.js': '',
  'string.js': '',
  'data.bin': '',
  'node_modules/leaf/package.json': JSON.stringify({ version: '1.0.0' }),
  'node_modules/leaf/sub.js': 'export default 1',
  'node_modules/@scope/pack/package.json': JSON.stringify({ version: '2.0.0' }),
};

function tree(): string {
  const folder = newFolder();
  for (const [name, text] of Object.entries(files)) write(folder, name, text);
  return folder;
}

function write(folder: string, name: string, text: string): void {
  mkdirSync(dirname(join(folder, name)), { recursive: true });
  writeFileSync(join(folder, name), text);
}

const digest = (folder: string, name = 'reward.js'): string | null => moduleDigest(join(folder, name));

describe('the digest of a reward module', () => {
  const required = ['old.cjs', 'plain.js', 'folder/main.js', 'resolved.txt', 'ticks.js', 'code.txt', 'from_text.js'];
  const created = ['loaded.js', 'again.json', 'at_once.js'];
  const imported = ['reward.js', 'lib/score.js', 'weights.json', 'lazy.mjs', 'inner.mjs'];
  it.each([...imported, ...required, ...created])('changes with %s', (name) => {
    const folder = tree();
    const before = digest(folder);
    expect(before).toMatch(/^[0-9a-f]{64}$/);
    write(folder, name, `${files[name]} `);
    expect(digest(folder)).not.toBe(before);
    write(folder, name, files[name]);
    expect(digest(folder)).toBe(before);
    if (name !== 'reward.js') rmSync(join(folder, name));
    expect(digest(folder) === before).toBe(name === 'reward.js');
  });

  it.each(['comment.js', 'string.js', 'data.bin', 'a/computed.js', 'node_modules/leaf/sub.js'])(
    'does not change with %s',
    (name) => {
      const folder = tree();
      const before = digest(folder);
      write(folder, name, 'other');
      expect(digest(folder)).toBe(before);
    },
  );

  it('changes with the version of a package, found as an import finds it', () => {
    const folder = tree();
    const before = digest(folder);
    for (const name of ['leaf', '@scope/pack', 'other']) {
      write(folder, `node_modules/${name}/package.json`, JSON.stringify({ version: '9.0.0' }));
      expect(digest(folder), name).not.toBe(before);
      write(folder, `node_modules/${name}/package.json`, files[`node_modules/${name}/package.json`]);
    }
    write(folder, 'lib/node_modules/leaf/package.json', JSON.stringify({ version: '9.0.0' }));
    expect(digest(folder)).toBe(before);
  });

  it('stays when all of it lies elsewhere, has another name, or is reached through a link', () => {
    const folder = tree();
    const before = digest(folder);
    const [moved, linked] = [newFolder(), newFolder()];
    cpSync(folder, join(moved, 'deep'), { recursive: true });
    expect(digest(join(moved, 'deep'))).toBe(before);
    symlinkSync(join(folder, 'reward.js'), join(linked, 'link.js'));
    expect(digest(linked, 'link.js')).toBe(before);
    const text = 'export default () => 1;';
    write(folder, 'one.js', text);
    const one = digest(folder, 'one.js');
    renameSync(join(folder, 'one.js'), join(folder, 'two.js'));
    expect(digest(folder, 'two.js')).toBe(one);
  });

  it('is there for a text that is no script, and not where nothing can be read', () => {
    const folder = newFolder();
    write(folder, 'odd.js', 'export default {{{ import');
    const before = digest(folder, 'odd.js');
    expect(before).toMatch(/^[0-9a-f]{64}$/);
    write(folder, 'odd.js', 'export default {{{ import (');
    expect(digest(folder, 'odd.js')).not.toBe(before);
    expect(digest(folder, 'gone.js')).toBeNull();
    expect(moduleDigest(folder)).toBeNull();
  });
});
