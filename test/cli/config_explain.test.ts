import { afterEach, describe, expect, it, vi } from 'vitest';
import { main } from '../../src/cli/main.js';
import { explain, explainableKeys } from '../../src/config/explain.js';
import { capture } from './run_directory.js';

afterEach(() => void vi.restoreAllMocks());

async function said(...args: string[]): Promise<{ code: number; out: string; error: string }> {
  const written = capture();
  return { code: await main(['config', 'explain', ...args]), ...written };
}

describe('editrl config explain', () => {
  it('gives meaning, type, default and effect, once for each way that recipes have the key', async () => {
    const { code, out } = await said('kl_coeff');
    expect(code).toBe(0);
    expect(out).toContain("algorithm.kl_coeff (algorithm.type 'grpo')\n");
    expect(out).toContain('  type: a number >= 0\n  default: 0.0003\n');
    expect(out).toContain('  default: 0.004\n');
    expect(out).toContain('  recipes: ip_adapter, image_editor\n');
    expect(out.split('\n').every((line) => line.length <= 80)).toBe(true);
  });

  it('lists the keys of a section', async () => {
    const { out } = await said('checkpoint');
    expect(out).toMatch(/checkpoint\.save_every_n_iterations\s+Save every/);
    expect(out).toContain('checkpoint.keep_last');
  });

  it('reads a place in a list as any place', () => {
    expect(explain('data.train.0.path')).toEqual(explain('data.train[].path'));
  });

  it('reports what a config has, and what set it', async () => {
    const { out } = await said(
      'optimizer',
      'configs/sft_s__rl_s.jsonnet',
      '--with',
      'configs/lib/tiny.libsonnet',
      '--set',
      'optimizer.eps=1e-7',
    );
    expect(out).toContain('optimizer.eps = 1e-7\n  set by: --set\n');
    expect(out).toContain('optimizer.weight_decay = ');
    const one = JSON.parse((await said('seed', 'configs/sft_s.jsonnet', '--json')).out) as { values: unknown };
    expect(one.values).toEqual([{ key: 'seed', value: 42, set_by: expect.any(String) as string }]);
  });

  it.each([
    ['lr', 'did you mean optimizer.learning_rate?'],
    ['algorithm.kl_coef', 'did you mean algorithm.kl_coeff?'],
    ['eps', 'did you mean optimizer.eps, algorithm.advantage.eps?'],
  ])('rejects %s by name', async (key, hint) => {
    const { code, error } = await said(key);
    expect(code).toBe(2);
    expect(error).toContain(hint);
  });

  it('explains every key that a schema knows', () => {
    for (const key of explainableKeys()) {
      expect(explain(key).length, key).toBeGreaterThan(0);
    }
  });
});
