import { writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadExperiment } from '../../src/config/experiment/load.js';
import { loadConfig, loadReferenced, type LoadedConfig } from '../../src/config/load.js';
import { diffSettings } from '../../src/config/hash.js';
import { getPath } from '../../src/core/schema/walk.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('inherit');
const file = 'configs/sft_s__rl_s.jsonnet';
const tiny = 'configs/lib/tiny.libsonnet';
const tokenizer = { run: 'tiny_vq', config: 'tiny_vq.jsonnet' };
const sft = { run: 'sft_s', config: 'sft_s.jsonnet' };

function written(text: string, name = 'mine.libsonnet'): string {
  const path = join(newFolder(), name);
  writeFileSync(path, text);
  return path;
}

async function family(overlay: string): Promise<Record<'rl' | 'sft' | 'vq', LoadedConfig>> {
  const rl = await loadConfig({ file, overlays: [tiny, overlay], env: {} });
  return { rl, sft: await loadReferenced(rl, sft, {}), vq: await loadReferenced(rl, tokenizer, {}) };
}

/** The same three, as a matrix of one cell makes them. */
async function planned(overlay: string): Promise<Record<'rl' | 'sft' | 'vq', LoadedConfig>> {
  const { cells, parents } = await loadExperiment({ file, overlays: [tiny, overlay], env: {} });
  const named = (name: string) => parents.find(({ run_name }) => run_name === name)?.config as LoadedConfig;
  return { rl: cells[0].config, sft: named('sft_s'), vq: named('tiny_vq') };
}

describe.each([
  ['a run', family],
  ['a matrix', planned],
])("the overlays of %s's parents", (_, load) => {
  it('reach each of them with the keys that its recipe has', async () => {
    const { rl, sft, vq } = await load(
      written('{ algorithm+: { kl_coeff: 1e-3, warmup_steps: 7 }, rollout+: { temperature: 0.8 }, seed: 9 }'),
    );
    expect(getPath(rl.settings, 'algorithm.kl_coeff')).toBe(1e-3);
    for (const { settings } of [rl, sft, vq]) {
      expect(settings).toMatchObject({ seed: 9, algorithm: { warmup_steps: 7 } });
    }
    expect(getPath(sft.settings, 'rollout.temperature')).toBe(0.8);
  });

  it('leave each of them its name', async () => {
    const { sft, vq } = await load(written("{ run_name: 'mine', seed: 9 }"));
    expect([sft, vq].map(({ settings }) => [settings.run_name, settings.seed])).toEqual([
      ['sft_s', 9],
      ['tiny_vq', 9],
    ]);
  });

  it('stay out where they say so', async () => {
    const { rl, sft, vq } = await load(written('{ reaches_parents: false, seed: 9 }'));
    expect([rl, sft, vq].map(({ settings }) => settings.seed)).toEqual([9, 42, 42]);
    const hidden = await load(written('{ reaches_parents:: true, seed: 9 }'));
    expect(hidden.sft.settings.seed).toBe(9);
  });

  it('say so with true or false', async () => {
    await expect(load(written("{ reaches_parents: 'no' }"))).rejects.toThrow(
      /mine.libsonnet: reaches_parents: found "no"; allowed: true or false/,
    );
  });

  it('keep a typo of a file of its own an error', async () => {
    const folder = newFolder();
    const configs = resolve('configs');
    const write = (name: string, text: string): void => {
      writeFileSync(join(folder, name), text);
    };
    write('sft_s.jsonnet', `(import '${configs}/sft_s.jsonnet') + { algorithm+: { warm_steps: 3 } }`);
    write('mine.jsonnet', `(import '${configs}/sft_s__rl_s.jsonnet') + { algorithm+: { kl_coef: 3 } }`);
    write('own.jsonnet', `import '${configs}/sft_s__rl_s.jsonnet'`);
    const overlay = written('{ algorithm+: { kl_coeff: 1e-3 } }');
    const parentOf = async (): Promise<unknown> => {
      const own = await loadConfig({ file: join(folder, 'own.jsonnet'), overlays: [tiny, overlay], env: {} });
      return loadReferenced(own, sft, {});
    };
    await expect(parentOf()).rejects.toThrow('did you mean algorithm.warmup_steps?');
    await expect(
      loadExperiment({ file: join(folder, 'own.jsonnet'), overlays: [tiny, overlay], env: {} }),
    ).rejects.toThrow(/algorithm.warm_steps: unknown key/);
    await expect(loadConfig({ file: join(folder, 'mine.jsonnet'), overlays: [tiny], env: {} })).rejects.toThrow(
      'did you mean algorithm.kl_coeff?',
    );
  });
});

describe('an axis that reaches parents', () => {
  it('reaches each of them with the keys that its recipe has', async () => {
    const text = `{ name: 'e', base: import '${resolve(file)}', with: ['${resolve(tiny)}'], share: ['both'],
      axes: { both: { a: { algorithm+: { kl_coeff: 1e-3, warmup_steps: 5 }, data+: { tiny+: { folder: 'a' } } }, b: {} } } }`;
    const { cells, parents } = await loadExperiment({ file: written(text, 'e.jsonnet'), env: {} });
    expect(cells.map(({ config }) => getPath(config.settings, 'algorithm.kl_coeff'))).toEqual([1e-3, 3e-4]);
    const warm = Object.fromEntries(
      parents.map(({ run_name, config }) => [run_name, getPath(config.settings, 'algorithm.warmup_steps')]),
    );
    expect(warm).toEqual({ 'sft_s__both-a': 5, 'sft_s__both-b': 20, 'tiny_vq__both-a': 5, 'tiny_vq__both-b': 0 });
  });
});

describe('what cannot change the weights of a supervised run', () => {
  it('is no part of its hash, and no change of its settings', async () => {
    const [plain, other] = await Promise.all(
      ['{}', "{ reward+: { mode: 'viescore', model: 'other' }, rollout+: { temperature: 0.5 } }"].map((text) =>
        family(written(text)),
      ),
    );
    expect(getPath(other.sft.settings, 'reward.model')).toBe('other');
    expect(other.sft.resultHash).toBe(plain.sft.resultHash);
    expect(diffSettings(plain.sft.settings, other.sft.settings)).toEqual([]);
    expect(other.rl.resultHash).not.toBe(plain.rl.resultHash);
    expect(diffSettings(plain.rl.settings, other.rl.settings).map(({ key }) => key)).toContain('reward.model');
  });
});

it('reports an overlay with a key of another algorithm', async () => {
  const request = {
    file: 'configs/sft_s.jsonnet',
    overlays: [tiny, written('{ algorithm+: { kl_coeff: 1 } }')],
    env: {},
  };
  await expect(loadConfig(request)).rejects.toThrow(
    "algorithm.kl_coeff: a key of algorithm.type 'grpo' only; here it is 'sft'",
  );
});
