import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../src/core/errors.js';
import { importClosure } from '../../src/config/jsonnet.js';
import { evaluate, loadConfig, originsOf } from '../../src/config/load.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('closure');

function folderWith(files: Readonly<Record<string, string | Buffer>>): string {
  const folder = newFolder();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

const hashOf = async (file: string): Promise<string> => (await evaluate({ file, env: {} })).importHash;

describe('the files of a config', () => {
  it.each([
    ["import @'lib/part.libsonnet'"],
    ['import @"lib/part.libsonnet"'],
    ["import /* shared */ 'lib/part.libsonnet'"],
    ["import // shared\n 'lib/part.libsonnet'"],
    ["import # shared\n 'lib/part.libsonnet'"],
    ["import'lib/part.libsonnet'"],
    ["import 'lib\\u002fpart.libsonnet'"],
    ["{ a: |||\n    it is\n      ||| 'here'\n  |||, b: import 'lib/part.libsonnet' }"],
    ["{ a: 'it''s', b: import 'lib/part.libsonnet' }".replace("'it''s'", "@'it''s'")],
    ["{ a: importstr 'lib/part.libsonnet' }"],
    ["{ a: importbin 'lib/part.libsonnet' }"],
  ])('include that of %s, so that the hash follows it', async (text) => {
    const folder = folderWith({ 'mine.jsonnet': text, 'lib/part.libsonnet': '{ a: 1 }' });
    const file = join(folder, 'mine.jsonnet');
    const before = await hashOf(file);
    writeFileSync(join(folder, 'lib/part.libsonnet'), '{ a: 2 }');
    expect(await hashOf(file)).not.toBe(before);
    expect([...importClosure([file]).keys()]).toEqual([file, join(folder, 'lib/part.libsonnet')]);
  });

  it('leave out what only looks like an import', () => {
    const text = `// import 'a'\n{ a: "import 'a'", b: |||\n  import 'a'\n|||, c: @'import "a"' } # import 'a'`;
    const folder = folderWith({ 'mine.jsonnet': text, a: '{}' });
    expect([...importClosure([join(folder, 'mine.jsonnet')]).keys()]).toEqual([join(folder, 'mine.jsonnet')]);
  });

  it('count by all bytes of an importbin', async () => {
    const folder = folderWith({ 'mine.jsonnet': "{ a: importbin 'a.bin' }", 'a.bin': Buffer.from([0xff]) });
    const before = await hashOf(join(folder, 'mine.jsonnet'));
    writeFileSync(join(folder, 'a.bin'), Buffer.from([0xfe]));
    expect(await hashOf(join(folder, 'mine.jsonnet'))).not.toBe(before);
  });

  it('are those that libjsonnet reads behind a linked folder', async () => {
    const folder = folderWith({
      'deep/real/part.libsonnet': "import '../other.libsonnet'",
      'deep/other.libsonnet': '{ a: 1 }',
      'other.libsonnet': '{ a: 2 }',
      'mine.jsonnet': "import 'link/part.libsonnet'",
    });
    symlinkSync(join(folder, 'deep/real'), join(folder, 'link'));
    const { value, sources } = await evaluate({ file: join(folder, 'mine.jsonnet'), env: {} });
    expect(value).toEqual({ a: 1 });
    expect([...sources.keys()]).toContain(join(folder, 'deep/other.libsonnet'));
  });

  it('name the file and line that set a value, through such imports', async () => {
    const folder = folderWith({
      'mine.jsonnet': "(import @'base.libsonnet') + (import /* shared */ 'lib/shared.libsonnet')",
      'base.libsonnet': "{ task: 'external', num_iterations: 1, launch: { command: ['true'] } }",
      'lib/shared.libsonnet': '{\n  seed: 7 }',
    });
    const [place] = await originsOf({ file: join(folder, 'mine.jsonnet'), env: {} }, ['seed']);
    expect(place).toBe(`${join(folder, 'lib/shared.libsonnet')}:2`);
  });
});

describe('an import that is not a text file', () => {
  async function refusal(text: string, folder = newFolder()): Promise<string> {
    const file = join(folder, 'mine.jsonnet');
    writeFileSync(file, text);
    const error: unknown = await loadConfig({ file, env: {} }).catch((thrown: unknown) => thrown);
    if (!(error instanceof ConfigError)) throw error;
    return error.toText().replaceAll(folder, '');
  }

  it.each([
    ["{\n a: importstr '/dev/zero' }", "mine.jsonnet:2: importstr '/dev/zero': this is a device, not a plain file"],
    ["import '/dev/stdin'", 'not a plain file'],
    ["if false then import '/dev/random' else {}", 'not a plain file'],
    ["import '/tmp'", "import '/tmp': this is a folder"],
  ])('is rejected at once: %s', async (text, message) => {
    expect(await refusal(text)).toContain(message);
  });

  it('is rejected at once if it is a named pipe', async () => {
    const folder = newFolder();
    execFileSync('mkfifo', [join(folder, 'pipe')]);
    expect(await refusal("importbin 'pipe'", folder)).toContain("importbin 'pipe': this is a named pipe");
  });

  it('is rejected with its line if it is not UTF-8', async () => {
    const folder = folderWith({ 'latin1.txt': Buffer.from('one\nna\xefve\n', 'latin1') });
    expect(await refusal("{ a: importstr 'latin1.txt' }", folder)).toContain(
      "importstr 'latin1.txt': is not text in UTF-8 (/latin1.txt:2)",
    );
  });
});

describe('a file that is imported as text', () => {
  const secret = 'hunter2hunter2';

  it.each([
    "{ task: importstr 'secret.txt' }",
    "{ task: 'text_answers', num_iterations: importstr 'secret.txt' }",
    "{ task: 'text_answers', data: [importstr 'secret.txt'] }",
    "error importstr 'secret.txt'",
    "{ [importstr 'secret.txt']: 1, task: 'text_answers' }",
    "{ task: 'text_answers', num_iterations: std.strReplace(importstr 'secret.txt', '\\n', '') }",
  ])('is not shown by the message about %s', async (text) => {
    const folder = folderWith({ 'mine.jsonnet': text, 'secret.txt': `user:1\n${secret}\n` });
    const file = join(folder, 'mine.jsonnet');
    const error: unknown = await loadConfig({ file, env: {} }).catch((thrown: unknown) => thrown);
    if (!(error instanceof ConfigError)) throw error;
    expect(error.toText()).not.toContain(secret);
  });
});
