import { chmodSync, chownSync, lchownSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { RunError } from '../../src/core/errors.js';
import { RunPaths } from '../../src/run/paths.js';
import { namedPrograms, requireOwn } from '../../src/run/recorded_config.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('trust');
const asRoot = process.getuid?.() === 0;
const STRANGER = 54321;
const settings = { launch: { command: ['sh', '-c', 'touch /tmp/x'], env: { NODE_OPTIONS: '--import /tmp/x.mjs' } } };

function made(): RunPaths {
  const paths = new RunPaths(newFolder(), 'run');
  mkdirSync(paths.dir, { recursive: true });
  writeFileSync(paths.record, '{}');
  writeFileSync(join(paths.dir, 'state.json'), '{}');
  return paths;
}

/** The refusal of a run; null if it is followed. */
function refusalOf(paths: RunPaths, uid?: number): string | null {
  try {
    requireOwn(paths, settings, uid);
    return null;
  } catch (error) {
    expect(error).toBeInstanceOf(RunError);
    return (error as RunError).toText();
  }
}

describe('a run', () => {
  it('of this user is followed', () => {
    expect(refusalOf(made())).toBeNull();
  });

  it.skipIf(!asRoot).each(['', 'run.json', 'state.json'])(
    'of which %j belongs to another user is refused, with the programs that it names',
    (file) => {
      const paths = made();
      chownSync(join(paths.dir, file), STRANGER, STRANGER);
      const refused = refusalOf(paths);
      expect(refused).toContain(`owned by user ${STRANGER}`);
      expect(refused).toContain("launch.command: sh -c 'touch /tmp/x'");
      expect(refused).toContain("launch.env: NODE_OPTIONS='--import /tmp/x.mjs'");
      expect(refused).toContain('--trust');
    },
  );

  it.skipIf(!asRoot)('in whose folder a link of another user lies is rejected', () => {
    const paths = made();
    symlinkSync('/etc', join(paths.dir, 'media'));
    lchownSync(join(paths.dir, 'media'), STRANGER, STRANGER);
    expect(refusalOf(paths)).toContain('media');
  });

  it.skipIf(!asRoot)('of root is followed by anybody, and that of another user not by root', () => {
    const paths = made();
    expect(refusalOf(paths, STRANGER)).toBeNull();
    for (const file of ['', 'run.json', 'state.json']) chownSync(join(paths.dir, file), STRANGER, STRANGER);
    expect(refusalOf(paths, STRANGER)).toBeNull();
    expect(refusalOf(paths, 0)).toContain(`user ${STRANGER}`);
  });

  it('that anybody may write is rejected', () => {
    const paths = made();
    chmodSync(paths.record, 0o666);
    expect(refusalOf(paths)).toContain('any user can write it');
    chmodSync(paths.record, 0o664);
    expect(refusalOf(paths)).toBeNull();
    chmodSync(paths.dir, 0o777);
    expect(refusalOf(paths)).toContain('any user can write it');
  });
});

it('names every program, module and environment of some settings', () => {
  const all = {
    launch: { command: null, env: {}, slurm: { judge: { command: ['vllm', 'serve'] } } },
    rollout: { engine: { serve: { command: ['python', '-m', 'x y'] } } },
    reward: { terms: [{ name: 'ocr' }, { name: 'module', module: '/tmp/evil.mjs' }] },
  };
  expect(namedPrograms(all)).toEqual([
    'launch.slurm.judge.command: vllm serve',
    "rollout.engine.serve.command: python -m 'x y'",
    'reward.terms.1.module: /tmp/evil.mjs',
  ]);
});
