import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { moduleDigest } from '../../../src/rewards/terms/module/digest.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('module-digest');

const files: Readonly<Record<string, string>> = {
  'reward.js': `import { score } from './lib/score.js?v=1'; import fs from 'node:fs'; import pack from 'pack';
    // import './comment.js'
    export * from './more.mjs'; await import('./lazy.mjs'); export default score;`,
  'lib/score.js': `import weights from '../weights.json' with { type: 'json' }; import '../reward.js'; export const score = 1;`,
  'weights.json': '[1, 2]',
  'more.mjs': 'export {}',
  'lazy.mjs': 'export {}',
  'comment.js': '',
  'node_modules/pack/index.js': '',
};

function tree(): string {
  const folder = newFolder();
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), text);
  }
  return folder;
}

const digest = (folder: string, name = 'reward.js'): string | null => moduleDigest(join(folder, name));

describe('the digest of a reward module', () => {
  it.each(['reward.js', 'lib/score.js', 'weights.json', 'more.mjs', 'lazy.mjs'])('changes with %s', (name) => {
    const folder = tree();
    const before = digest(folder);
    writeFileSync(join(folder, name), `${files[name]} `);
    expect(digest(folder)).not.toBe(before);
    rmSync(join(folder, name));
    expect(digest(folder)).not.toBe(before);
  });

  it.each(['comment.js', 'node_modules/pack/index.js'])('does not change with %s', (name) => {
    const folder = tree();
    const before = digest(folder);
    writeFileSync(join(folder, name), 'other');
    expect(digest(folder)).toBe(before);
  });

  it('is the same if all files are moved together, and not if one of them is', () => {
    const [folder, other] = [tree(), newFolder()];
    cpSync(folder, other, { recursive: true });
    expect(digest(other)).toBe(digest(folder));
    writeFileSync(join(other, 'reward.js'), files['reward.js'].replace('./more.mjs', './lib/more.mjs'));
    cpSync(join(other, 'more.mjs'), join(other, 'lib/more.mjs'));
    expect(digest(other)).not.toBe(digest(folder));
  });

  it('is null for a file that cannot be read, and ends for pipes', () => {
    const folder = newFolder();
    expect(digest(folder, 'gone.js')).toBeNull();
    expect(digest(folder, '.')).toBeNull();
    execFileSync('mkfifo', [join(folder, 'pipe.js')]);
    expect(digest(folder, 'pipe.js')).toBeNull();
    writeFileSync(join(folder, 'reward.js'), "import './pipe.js'; export default 1;");
    expect(digest(folder)).not.toBeNull();
  });
});
