/** The configs of EARL's family, and what each of them must do. */
import { expect, it } from 'vitest';
import { cannotRunYet } from '../../src/config/models.js';
import type { RunSettings } from '../../src/config/schema/run.js';
import { loadEvaluated } from './evaluated.js';
import { editSettings } from './trained.js';

export const env = { APP__REWARD_FUNCTION_API_BASE: 'http://judge:4877' };
export const tiny = ['configs/lib/tiny.libsonnet'];
/** The RL runs, in an order in which no start is made twice. */
export const rlRuns = [
  'sft_s__rl_s',
  'sft_s__rl_c',
  'sft_s__rl_sc',
  'sft_sc__rl_c',
  'sft_sc__rl_sc',
  'sft_sc2stage__rl_c',
  'sft_sc2stage__rl_sc',
  'sft_think_s__rl_s',
  'sft_think_s__rl_c',
  'sft_think_s__rl_sc',
];
export const family = ['sft_s', 'sft_sc', 'sft_sc2stage', 'sft_think_s', ...rlRuns];

/** Runs that the quick tests load; the slow ones load the others. */
export const quick: readonly string[] = ['sft_sc2stage', 'sft_s__rl_c', 'sft_think_s__rl_sc'];

export async function load(name: string, size: 'full' | 'tiny'): Promise<RunSettings> {
  const config = await loadEvaluated({ file: `configs/${name}.jsonnet`, overlays: size === 'tiny' ? tiny : [], env });
  return config.settings;
}

export function loadsAtBothSizes(names: readonly string[]): void {
  it.each(names)('%s loads at both sizes', async (name) => {
    const [full, small] = [editSettings(await load(name, 'full')), editSettings(await load(name, 'tiny'))];
    expect(full.run_name).toBe(name);
    expect(small.run_name).toBe(name);
    const algorithm = name.includes('__rl_') ? 'grpo' : 'sft';
    expect([full.algorithm.type, small.algorithm.type]).toEqual([algorithm, algorithm]);
    expect(full.policy.assistant_prefill.includes('thinking')).toBe(name.includes('think'));
    expect(small.policy.assistant_prefill).toBe(full.policy.assistant_prefill);
    expect(cannotRunYet(full)).toEqual([]);
    expect(cannotRunYet(small)).toEqual([]);
  });
}
