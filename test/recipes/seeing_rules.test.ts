/** Which settings of a policy that sees can work. */
import { describe, expect, it } from 'vitest';
import { policyRules } from '../../src/recipes/shared/tokens/rules.js';
import { problemsOf } from './video_actions/small.js';

function problems(settings: object): string[] {
  return policyRules.flatMap((rule) => rule(settings).map(({ key, message }) => `${key}: ${message}`));
}

describe('a policy that sees', () => {
  it('is sampled by a running server only without adapters of its vision encoder and connector', () => {
    const running = { type: 'vllm', base_url: 'http://host:8000', serve: null };
    const sampled = (train: object, lora: object | null = {}, engine: object = running) => {
      const policy = { model: { hub: 'some/model', revision: 'a' }, init: null, lora, pixels: {}, train };
      return problemsOf({ rollout: { engine }, policy, prompt: {} });
    };
    const words = { mm_vision: false, mm_mlp: false, mm_llm: true };
    expect(sampled(words)).toEqual([]);
    expect(sampled({ ...words, mm_mlp: true })).toEqual([
      expect.stringContaining(
        'rollout.engine.base_url: found with adapters of the vision encoder or connector (policy.train.mm_mlp)',
      ),
    ]);
    expect(sampled({ ...words, mm_vision: true, mm_mlp: true }, null)).toEqual([]);
    expect(sampled({ ...words, mm_vision: true }, {}, { type: 'vllm', base_url: null, serve: {} })).toEqual([]);
  });

  it.each(['image', 'video'])('is shown at least as many pixels as it may at most: %s', (kind) => {
    const pixels = (min_pixels: number): object => ({ policy: { pixels: { [kind]: { min_pixels, max_pixels: 99 } } } });
    expect(problems(pixels(100))).toEqual([
      `policy.pixels.${kind}.min_pixels: found 100; allowed: at most max_pixels (99)`,
    ]);
    expect(problems(pixels(99))).toEqual([]);
  });

  it('holds frozen weights in half precision beside an adapter that is trained here', () => {
    const half = (lora: object | null, type = 'onnx'): object => ({
      policy: { engine: { dtype: 'float16' }, lora, trainer: { type } },
    });
    const refused = (why: string): unknown => [expect.stringContaining(`policy.engine.dtype: found 'float16' ${why}`)];
    expect(problems(half({}))).toEqual([]);
    expect(problems(half(null))).toEqual(refused('without adapters (policy.lora: null); allowed: with policy.lora'));
    // A server's adapter is no policy.lora, which is refused there.
    const served = "with a training server, which stores the weights; allowed: 'float32'";
    expect(problems(half(null, 'tinker'))).toEqual(refused(served));
  });
});
