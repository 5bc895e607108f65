/** The packed package in a folder of its own: what a person gets who installs editrl without a clone. */
import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { testFolder } from '../support/folder.js';
import { ROOT } from './editrl.js';

interface Lock {
  readonly packages: Readonly<Record<string, { readonly dev?: boolean }>>;
}

const home = join(testFolder('package'), 'a folder with spaces');
const modules = join(home, 'node_modules');
const installed = join(modules, 'editrl');
let size = 0;

/** Packs the build, and unpacks it beside the dependencies that the lock file lists for production. */
beforeAll(() => {
  mkdirSync(installed, { recursive: true });
  const packed = spawnSync('npm', ['pack', '--ignore-scripts', '--json', '--pack-destination', home], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  const [{ filename, size: bytes }] = JSON.parse(packed.stdout) as [{ filename: string; size: number }];
  size = bytes;
  expect(spawnSync('tar', ['xzf', join(home, filename), '-C', installed, '--strip-components=1']).status).toBe(0);
  const { packages } = JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8')) as Lock;
  for (const [path, { dev }] of Object.entries(packages)) {
    // Only packages at the top: those inside them come along.
    const isTop = /^node_modules\/(@[^/]+\/)?[^/]+$/.test(path);
    if (!isTop || dev === true || !existsSync(join(ROOT, path))) continue;
    mkdirSync(dirname(join(home, path)), { recursive: true });
    symlinkSync(join(ROOT, path), join(home, path));
  }
  for (const file of readdirSync(installed, { recursive: true, withFileTypes: true })) {
    const path = join(file.parentPath, file.name);
    chmodSync(path, file.isDirectory() || file.name === 'main.js' ? 0o555 : 0o444);
  }
});

function editrl(args: readonly string[], cwd = home) {
  const main = join(installed, 'dist/src/cli/main.js');
  return spawnSync(process.execPath, [main, ...args], { cwd, encoding: 'utf8' });
}

describe('the package', () => {
  it('is smaller than 5 MB and has neither tests nor sources', () => {
    expect(size).toBeLessThan(5e6);
    const files = readdirSync(installed, { recursive: true }).map(String);
    expect(files.filter((file) => /(^|\/)test\/|\.tsx?$|\.map$/.test(file) && !file.endsWith('.d.ts'))).toEqual([]);
  });

  it('prints its version', () => {
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string };
    expect(editrl(['--version']).stdout.trim()).toBe(version);
  });

  it('writes a project that trains and continues from its own folder', { timeout: 300_000 }, () => {
    expect(editrl(['init', 'demo'])).toMatchObject({ status: 0, stderr: '' });
    const demo = join(home, 'demo');
    expect(existsSync(join(demo, '.gitignore'))).toBe(true);
    const again = editrl(['init', 'demo']);
    expect(again.status).toBe(2);
    expect(again.stderr).toContain('not empty');
    const configs = readdirSync(join(demo, 'configs')).map((name) => `configs/${name}`);
    expect(editrl(['check', ...configs], demo)).toMatchObject({ status: 0 });
    expect(editrl(['plan', 'experiments/learning_rate.jsonnet'], demo)).toMatchObject({ status: 0 });
    writeFileSync(join(demo, 'configs/own_vq.jsonnet'), "import 'editrl/tiny_vq.jsonnet'");
    const train = (iterations: number) =>
      editrl(['run', 'configs/own_vq.jsonnet', '--json', '--set', `num_iterations=${iterations}`], demo);
    expect(train(2)).toMatchObject({ status: 0 });
    const longer = train(4);
    expect(longer.status).toBe(0);
    expect(longer.stdout).toContain('"own_vq"');
    expect(existsSync(join(demo, 'runs/tiny/own_vq/checkpoints'))).toBe(true);
  });
});
