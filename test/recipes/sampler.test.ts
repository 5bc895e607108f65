/** Which settings of a sampler elsewhere can work, and what others are told of it. */
import { describe, expect, it } from 'vitest';
import { imageEditTokens } from '../../src/recipes/image_edit_tokens/settings.js';
import { remoteSampling, samplerRules } from '../../src/recipes/shared/tokens/rules.js';
import { samplingEngine } from '../../src/config/schema/sampler.js';

const engine = { type: 'vllm', base_url: 'http://host:8000', serve: null };
const good = { rollout: { engine }, policy: { lora: { rank: 16 } }, launch: { devices: null } };

function problems(settings: object): string[] {
  return samplerRules.flatMap((rule) => rule(settings).map(({ key, message }) => `${key}: ${message}`));
}

describe('a sampler elsewhere', () => {
  it('has the model that training starts from', () => {
    const from = (policy: object): string[] => problems({ ...good, policy: { lora: null, ...policy } });
    expect(from({ model: null, init: {} })).toEqual([
      'rollout.engine: found vllm with random initial weights (policy.init), which no server has; allowed: with policy.model, or null to sample in this process',
    ]);
    // A config with neither is a base for others.
    expect(from({ model: null, init: null })).toEqual([]);
    expect(from({ model: '/model', init: null })).toEqual([]);
  });

  it('gets the rules of image blocks, or samples without them', () => {
    const parsed = samplingEngine.parse(engine);
    const sampled = (uses: boolean) => {
      const policy = { model: '/model', lora: { rank: 16 }, model_context_size: 9, emu3_use_logit_processor: uses };
      expect(imageEditTokens.broken({ ...good, rollout: { engine: parsed }, policy })).toEqual([]);
      return remoteSampling({ rollout: { engine: parsed }, policy })?.blocks;
    };
    expect([true, false].map(sampled)).toEqual([true, false]);
  });

  it('does not refill what is sampled ahead', () => {
    const ahead = (rollout: object) =>
      problems({ rollout: { engine: null, importance_cap: 2, ...rollout }, policy: { trainer: { type: 'tinker' } } });
    expect(ahead({ ahead: 1, refill: { rounds: 1 } })).toEqual([
      expect.stringMatching(/^rollout.refill: found with rollout.ahead 1, .*; allowed: null, or rollout.ahead 0$/),
    ]);
    expect(ahead({ ahead: 1, refill: null })).toEqual([]);
    expect(ahead({ ahead: 0, refill: { rounds: 1 } })).toEqual([]);
  });

  it('is described to the launcher with the model that it has to serve', () => {
    const parsed = samplingEngine.parse(engine);
    const policy = { model: '/model', lora: { rank: 4 }, model_context_size: 99 };
    expect(remoteSampling({ rollout: { engine: parsed }, policy })).toEqual({
      engine: parsed,
      model: '/model',
      rank: 4,
      adaptsVision: false,
      pixelLimits: null,
      blocks: false,
      contextSize: 99,
    });
    expect(remoteSampling({ rollout: { engine: parsed }, policy: { ...policy, lora: null } })?.rank).toBeNull();
    expect(remoteSampling({ rollout: { engine: parsed }, policy: { ...policy, model: null } })).toBeNull();
    expect(remoteSampling({ rollout: { engine: null }, policy })).toBeNull();
    const pixels = { image: { min_pixels: 5, max_pixels: 80 }, video: { min_pixels: 7, max_pixels: 90 } };
    expect(remoteSampling({ rollout: { engine: parsed }, policy: { ...policy, pixels } })?.pixelLimits).toEqual({
      min_pixels: 5,
      max_pixels: 90,
    });
  });
});
