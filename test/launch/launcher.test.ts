import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../src/config/load.js';
import { CheckpointError, ConfigError } from '../../src/core/errors.js';
import { PlainView } from '../../src/launch/live/view.js';
import { Launcher } from '../../src/launch/launcher.js';
import { runResolver } from '../../src/launch/models/wanted.js';
import { saveCheckpoint } from '../../src/run/checkpoints.js';
import { RunPaths } from '../../src/run/paths.js';

let dir: string;
beforeAll(() => {
  dir = mkdtempSync(join(tmpdir(), 'editrl-launch-'));
});
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const family = join(process.cwd(), 'configs');

/** A tiny config of the family that starts from a run that is made by a config of the test's own. */
function load(name: string, start: string): Promise<LoadedConfig> {
  const file = join(dir, `${name}.jsonnet`);
  const policy = `{ model: { run: '${start}', config: '${start}.jsonnet' }, tokenizer: '${dir}' }`;
  const text = `(import '${family}/sft_s__rl_s.jsonnet') + (import '${family}/lib/tiny.libsonnet')
    + { policy+: ${policy}, environment+: { model: '${dir}' } }`;
  writeFileSync(file, text);
  return loadConfig({ file, env: { APP__BASE_EXP_DIR: join(dir, 'runs'), APP__DATA_DIR: join(dir, 'data') } });
}

function launcher(): { launcher: Launcher; printed: () => string } {
  let text = '';
  const view = new PlainView((line) => (text += line));
  const stop = new AbortController().signal;
  return { launcher: new Launcher({ view, command: [], stop }), printed: () => text };
}

describe('a run that starts from another', () => {
  it('is rejected when the two need each other, before anything is written', async () => {
    await load('hen', 'egg');
    const egg = await load('egg', 'hen');
    const { launcher: one, printed } = launcher();
    const failure = one.run(egg);
    await expect(failure).rejects.toThrow(ConfigError);
    await expect(failure).rejects.toThrow('runs start from each other: egg -> hen -> egg');
    expect(printed()).toBe('');
    expect(() => runResolver(join(dir, 'runs'))({ run: 'hen', config: '' })).toThrow(CheckpointError);
  });

  it('is given the newest whole checkpoint, or the one that it has pinned', () => {
    const runs = join(dir, 'resolved');
    const parent = { run: 'parent', config: '' };
    const paths = new RunPaths(runs, 'parent');
    mkdirSync(paths.dir, { recursive: true });
    saveCheckpoint(paths, 1, { 'a.txt': 'one' });
    const newest = saveCheckpoint(paths, 2, { 'a.txt': 'two' });
    expect(runResolver(runs)(parent)).toBe(newest);
    writeFileSync(join(newest, 'a.txt'), 'TWO');
    expect(runResolver(runs)(parent)).toBe(paths.checkpoint(1));
    saveCheckpoint(paths, 3, { 'a.txt': 'three' });
    const used: string[] = [];
    const pinned = runResolver(
      runs,
      () => ({ parents: [{ run: 'parent', iteration: 1 }] }),
      (run, { iteration }) => used.push(`${run} ${iteration}`),
    );
    expect(pinned(parent)).toBe(paths.checkpoint(1));
    expect(used).toEqual(['parent 1']);
  });
});
