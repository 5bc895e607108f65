/** What a table of the program lists is documented, and keeps the contract of its kind: a test that an addition lacks is named here. */
import { readdirSync, readFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { keyPaths } from '../scripts/keys_page.js';
import { recipes } from '../src/recipes/settings.js';
import { termNames } from '../src/rewards/terms/table.js';
import { RECIPES } from '../vitest.config.js';

const textOf = (file: string): string => readFileSync(file, 'utf8');
/** The files of a folder and of those in it, from the root. */
const filesOf = (folder: string): string[] =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' }).map((name) => join(folder, name));
const tests = filesOf('test').filter((file) => file.endsWith('.test.ts'));
const sources = filesOf('src').filter((file) => file.endsWith('.ts'));

/** The files of the program that a file imports, from the root. */
function importsOf(file: string): string[] {
  const found = [...textOf(file).matchAll(/from '(\.[^']+)\.js'/g)];
  return found.map(([, path]) => `${join(dirname(file), path)}.ts`);
}

/** The files of the program that are imported by tests which call a contract. */
function keeping(contract: string): Set<string> {
  return new Set(tests.filter((file) => textOf(file).includes(`${contract}(`)).flatMap(importsOf));
}

describe('a reward of the table', () => {
  const kinds = importsOf('src/rewards/terms/table.ts').filter((file) => basename(file) !== 'term.ts');
  const tested = [...keeping('termContract')];
  it.each(kinds)('%s keeps termContract in a test that imports it', (file) => {
    const folder = file.replace(/\.ts$/, '/');
    expect(tested.some((kept) => kept === file || kept.startsWith(folder))).toBe(true);
  });

  const page = textOf('docs/guide/rewards.md');
  it.each(termNames)('%s has a row in docs/guide/rewards.md', (name) => {
    expect(page.includes(`\n| \`${name}\` `)).toBe(true);
  });
});

describe('a recipe that learns from rewards', () => {
  const learning = Object.entries(recipes).flatMap(([name, { trainer, schema }]) =>
    trainer === 'this program' && 'rollout' in schema.shape ? [name] : [],
  );
  const called = tests.flatMap((file) =>
    [...textOf(file).matchAll(/recipeContract\(\s*'(\w+)/g)].map(([, name]) => name),
  );
  it.each(learning)('%s keeps recipeContract', (name) => {
    expect(called).toContain(name);
  });

  it('has one short run in npm test', () => {
    expect([...RECIPES].sort()).toEqual([...learning].sort());
  });
});

it('every client of another machine keeps the contract of remotes', () => {
  const makes = /new (Awaited)?Remote[<(]|\bpictureRemote\(/;
  const shared = ['src/core/remote/remote.ts', 'src/train/environments/served.ts'];
  const clients = sources.filter((file) => makes.test(textOf(file)) && !shared.includes(file));
  expect(clients.length).toBeGreaterThan(3);
  const specified = importsOf('test/remotes/contract.test.ts');
  expect(clients.filter((file) => !specified.includes(file))).toEqual([]);
});

it('every tracker that passes rows on keeps the contract of trackers', () => {
  const readsRows = (file: string): boolean => importsOf(file).includes('src/run/track/rows.ts');
  const trackers = new Set(
    sources.filter((file) => /^src\/run\/track\/\w+\//.test(file) && readsRows(file)).map((file) => dirname(file)),
  );
  expect(trackers.size).toBeGreaterThan(1);
  const kept = new Set([...keeping('trackerContract')].map((file) => dirname(file)));
  expect([...trackers].filter((folder) => !kept.has(folder))).toEqual([]);
});

describe('a rule of a recipe', () => {
  const known = [...keyPaths()];
  const sections = [...new Set(known.flatMap((key) => (key.includes('.') ? [key.split('.', 1)[0]] : [])))];
  const dotted = new RegExp(`(['\`])((?:${sections.join('|')})(?:\\.(?:\\w+|\\$\\{[^}]+\\}))+)\\1`, 'g');
  const named = sources
    .filter((file) => file.startsWith('src/recipes/'))
    .flatMap((file) => [...textOf(file).matchAll(dotted)].map(([, , key]) => [key, file] as const));

  it('is found, with what it names', () => {
    expect(named.length).toBeGreaterThan(100);
  });

  it.each([...new Map(named)])('names a key that a config has: %s in %s', (key) => {
    // What is put in stands for a key, and an index for any element of a list.
    const field = key.replace(/\.\$\{[^}]+\}$/, '');
    const pattern = new RegExp(`^${field.replaceAll('.', '\\.').replaceAll(/\$\{[^}]+\}/g, '[\\w*]+')}$`);
    expect(known.some((path) => pattern.test(path.replaceAll('[]', '.0')))).toBe(true);
  });
});
