import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { loadConfig } from '../../src/config/load.js';
import type { RunPaths } from '../../src/run/paths.js';
import { testFolder } from '../support/folder.js';
import { capture, RunFolder } from './run_directory.js';

const TINY = 'configs/lib/tiny.libsonnet';
const folder = testFolder('config-diff');
const runs = new RunFolder();

afterAll(() => runs.remove());
afterEach(() => {
  vi.restoreAllMocks();
});

/** The record of a run of a config, as `run` would have left it. */
async function record(name: string, file: string, sets: readonly string[] = []): Promise<RunPaths> {
  const { settings } = await loadConfig({ file, overlays: [TINY], sets: [`run_name=${name}`, ...sets] });
  const paths = runs.make(name, 'finished');
  const written = JSON.parse(readFileSync(paths.record, 'utf8')) as object;
  writeFileSync(paths.record, JSON.stringify({ ...written, settings }));
  return paths;
}

/** The command with --json, and the same as a table. */
async function diff(...args: string[]): Promise<{ differences: unknown; out: string }> {
  const written = capture();
  const call = ['config', 'diff', ...args, '--exp-dir', runs.dir];
  expect(await main([...call, '--json'])).toBe(0);
  const { differences } = JSON.parse(written.out) as { differences: unknown };
  written.out = '';
  expect(await main(call)).toBe(0);
  expect(written.error).toBe('');
  return { differences, out: written.out };
}

describe('editrl config diff', () => {
  it('prints what two runs recorded, sorted, and whether it decides the result', async () => {
    await record('one', 'configs/sft_s__rl_s.jsonnet');
    await record('two', 'configs/sft_s__rl_s.jsonnet', ['optimizer.learning_rate=1e-5', 'algorithm.kl_coeff=0']);
    const { differences, out } = await diff('one', 'two');
    expect(differences).toEqual([
      { key: 'algorithm.kl_coeff', a: 0.0003, b: 0, effect: 'result' },
      { key: 'optimizer.learning_rate', a: 0.0004, b: 0.00001, effect: 'result' },
      { key: 'run_name', a: 'one', b: 'two', effect: 'operation' },
    ]);
    expect(out.split('\n').slice(0, 3)).toEqual([
      'key                      one     two      effect',
      expect.stringMatching(/^─+/),
      'algorithm.kl_coeff       0.0003  0        result',
    ]);
  });

  it('applies --with and --set to configs alone, and takes the folder of a run', async () => {
    const paths = await record('three', 'configs/sft_s__rl_s.jsonnet');
    const config = ['configs/sft_s__rl_s.jsonnet', '--with', TINY, '--set', 'seed=7', '--set', 'run_name=three'];
    expect((await diff(paths.dir, ...config)).differences).toEqual([{ key: 'seed', a: 42, b: 7, effect: 'result' }]);
    const same = await diff('three', ...config.slice(0, -4), '--set', 'run_name=three');
    expect(same).toEqual({ differences: [], out: 'three and configs/sft_s__rl_s.jsonnet have the same settings.\n' });
  });

  it('calls operation what a resume takes, such as what only scores a supervised run', async () => {
    await record('here', 'configs/sft_s.jsonnet');
    await record('there', 'configs/sft_s.jsonnet', ['reward.mode=ground_score', 'num_iterations=2000']);
    const { differences } = await diff('here', 'there');
    expect(differences).toContainEqual({ key: 'reward.mode', a: 'viescore', b: 'ground_score', effect: 'operation' });
    expect(differences).toContainEqual({ key: 'num_iterations', a: 1000, b: 2000, effect: 'result' });
  });

  it('shows keys that one side alone has, in lists and between recipes', async () => {
    const { differences, out } = await diff('configs/sft_s.jsonnet', 'configs/sft_sc.jsonnet', '--with', TINY);
    expect(differences).toContainEqual({
      key: 'data.train.1.path',
      b: 'data/tiny/c/train_half/list/tokenized_datalist.json',
      effect: 'result',
    });
    expect(out).toMatch(/^data\.train\.1\.path +– +"data\/tiny\/c\//m);
    const kinds = await diff('configs/sft_s.jsonnet', 'configs/tiny_vq.jsonnet', '--with', TINY);
    expect(kinds.differences).toContainEqual({ key: 'policy.model', a: null, effect: 'result' });
    expect(kinds.differences).toContainEqual({ key: 'environment.init.patch', b: 8, effect: 'result' });
  });

  it('reports a text file whose text has changed since the run was started', async () => {
    const prompt = join(folder, 'sc.txt');
    writeFileSync(prompt, 'is it done?');
    const set = `reward.prompts={"viescore_sc": ${JSON.stringify(prompt)}}`;
    const paths = await record('four', 'configs/sft_s__rl_s.jsonnet', [set]);
    const key = 'reward.prompts.viescore_sc';
    const written = JSON.parse(readFileSync(paths.record, 'utf8')) as object;
    writeFileSync(paths.record, JSON.stringify({ ...written, texts: { [key]: 'f'.repeat(64) } }));
    const { differences } = await diff(
      'four',
      'configs/sft_s__rl_s.jsonnet',
      '--with',
      TINY,
      '--set',
      set,
      '--set',
      'run_name=four',
    );
    expect(differences).toEqual([
      {
        key,
        a: `${prompt} (text ffffffffffff)`,
        b: expect.stringMatching(/sc\.txt \(text [0-9a-f]{12}\)$/) as string,
        effect: 'result',
      },
    ]);
  });

  it.each([
    [['one', 'two', '--set', 'seed=1'], '--with and --set do not apply to recorded runs'],
    [['one', 'nope.jsonnet'], 'nope.jsonnet: no such file'],
  ])('rejects %j', async (args, message) => {
    const written = capture();
    expect(await main(['config', 'diff', ...args, '--exp-dir', runs.dir])).toBe(2);
    expect(written.error).toContain(message);
  });
});
