import { expect, it } from 'vitest';
import { isTrained, type PolicyModel } from '../../../src/models/adapters/policy_model.js';

const parts = {
  mm_llm: 'model.layers.0.self_attn.q_proj',
  mm_vision: 'visual.blocks.0.attn.qkv',
  mm_mlp: 'visual.merger.mlp.0',
} as const;
const names = Object.values(parts).flatMap((layer) => [`${layer}.weight`, `${layer}.bias`]);
const config = {} as PolicyModel['config'];
const trained = (model: Pick<PolicyModel, 'config' | 'trains'>) => names.filter((name) => isTrained(model, name));

it('trains an adapter alone if there is one: neither a weight nor a bias below it', () => {
  const adapted = { config: { ...config, adapter: { rank: 1, scale: 1, layers: new Set<string>() } } };
  expect(trained(adapted)).toEqual([]);
  for (const half of ['A', 'B']) expect(isTrained(adapted, `${parts.mm_llm}.lora_${half}.weight`)).toBe(true);
});

it('trains the parts that are to train, weights and biases, and all of them by default', () => {
  expect(trained({ config })).toEqual(names);
  for (const part of Object.keys(parts) as (keyof typeof parts)[]) {
    const trains = { mm_llm: false, mm_vision: false, mm_mlp: false, [part]: true };
    expect(trained({ config, trains })).toEqual([`${parts[part]}.weight`, `${parts[part]}.bias`]);
  }
});
