import { describe, expect, it } from 'vitest';
import { servedTokens, showServedTokens } from '../../src/launch/served_tokens.js';
import type { RunSettings } from '../../src/schema/run.js';

const plain = { type: 'grpo', clip_range: null, inner_epochs: 1, minibatches: 1, kl_coeff: 0 };

function settings(changes: Readonly<Record<string, object>> = {}): RunSettings {
  const all = {
    algorithm: plain,
    rollout: { episodes_per_iteration: 8, generations_per_sample: 4, max_response_tokens: 30, ahead: 0 },
    validation: { prompts: 5, greedy: true },
    policy: { model_context_size: 100, trainer: { type: 'tinker', base_model: 'base' } },
  };
  return Object.entries(changes).reduce(
    (made, [key, change]) => ({ ...made, [key]: { ...made[key as 'policy'], ...change } }),
    all,
  ) as unknown as RunSettings;
}

describe('what a run asks of its training server', () => {
  it('is two prompts, eight answers and a pass over them in an iteration', () => {
    const found = servedTokens(settings())!;
    expect(found.iteration).toEqual({ prefill: 2 * 100, sampled: 8 * 30, trained: 8 * 100 });
    expect(found.evaluation).toEqual({ prefill: 10 * 100, sampled: 10 * 30, trained: 0 });
    const told = 'at most 200 tokens read, 240 written, 800 trained on in an iteration';
    expect(showServedTokens(found)).toBe(told);
    const trainer = { type: 'tinker', base_model: 'base', serve: {} };
    const started = servedTokens(settings({ policy: { trainer } }))!;
    expect(showServedTokens(started)).toBe(`${told}, at a training server that is started with it`);
  });

  it.each([
    ['a ratio', { algorithm: { clip_range: 0.2, inner_epochs: 2 } }, 200 + 2 * 800, 1600],
    ['KL', { algorithm: { kl_coeff: 0.1 } }, 200 + 2 * 800, 800],
    ['older weights', { rollout: { ahead: 1 } }, 200 + 800, 800],
  ])('needs further passes for %s', (_, changes, prefill, trained) => {
    expect(servedTokens(settings(changes))!.iteration).toMatchObject({ prefill, trained });
  });

  it('may be as many prompts and answers more as are refilled, and learns from no more', () => {
    const found = servedTokens(settings({ rollout: { refill: { rounds: 2 } } }))!;
    expect(found.iteration).toEqual({ prefill: 6 * 100, sampled: 24 * 30, trained: 8 * 100 });
  });

  it('is a batch in supervised training, and held-out labels beside the answers', () => {
    const found = servedTokens(settings({ algorithm: { type: 'sft', sft: { batch_size: 6 } } }))!;
    expect(found.iteration).toEqual({ prefill: 0, sampled: 0, trained: 600 });
    expect(found.evaluation.prefill).toBe(10 * 100 + 5 * 100);
  });

  it('is nothing where this program trains', () => {
    expect(servedTokens(settings({ policy: { trainer: { type: 'onnx' } } }))).toBeNull();
    expect(servedTokens({} as unknown as RunSettings)).toBeNull();
  });
});
