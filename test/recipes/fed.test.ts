/** What decoding steps are fed on a device, and what is too much. */
import { refuseFed, MOST_FED, type FedPerStep } from '../../src/recipes/shared/memory.js';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { measure, sizes, type Sampling } from '../../scripts/bench/gpu_check_parts.js';
import { fedPerStep } from '../../src/recipes/shared/tokens/settings.js';
import type { EngineError } from '../../src/core/errors.js';
import { testFolder } from '../support/folder.js';

type Settings = Parameters<typeof fedPerStep>[0];
const GIB = 2 ** 30;
const folder = testFolder('fed');

const { config, answers, promptTokens, answerTokens } = sizes.tiny;
const lora = { rank: 16, alpha: 32, rslora: false, targets: 'all-linear' };

interface Changes {
  readonly rollout?: object;
  readonly policy?: object;
  readonly algorithm?: object;
  readonly validation?: object;
}

/** Settings that sample what `scripts/gpu_check` does at its tiny size. */
function settings({ rollout = {}, policy = {}, algorithm = {}, validation = {} }: Changes = {}): Settings {
  return {
    algorithm: { type: 'grpo', ...algorithm },
    rollout: {
      engine: null,
      episodes_per_iteration: 2 * answers,
      generations_per_sample: answers,
      chunk_groups: null,
      max_response_tokens: answerTokens,
      ...rollout,
    },
    validation: { prompts: 0, ...validation },
    policy: { lora, model_context_size: promptTokens - 1 + answerTokens, engine: { dtype: 'float32' }, ...policy },
  } as unknown as Settings;
}

const fedBy = (changes: Changes = {}, processes = 1) => fedPerStep(settings(changes), config, processes);

describe('what a decoding step is fed', () => {
  it('is what sessions are given where nothing lies on the device', async () => {
    const values = join(folder, 'values');
    const job = { kind: 'model', provider: 'cpu', threads: 1, size: 'tiny', rounds: 1, values } as const;
    let sampled: Sampling | null = null;
    for await (const report of measure(job)) {
      if (report.part === 'sampling' && 'found' in report) sampled = report.found;
    }
    const { caches, weights } = fedBy()!;
    expect((caches + weights) / sampled!.fedBytes).toBeCloseTo(1, 1);
  });

  it('is the base, in the form that it is held in, and what an adapter adds', () => {
    const [lora, whole] = [fedBy()!, fedBy({ policy: { lora: null } })!];
    expect(whole.caches).toBe(lora.caches);
    const adapters = lora.weights - whole.weights;
    expect(adapters).toBeGreaterThan(0);
    const half = { ...settings().policy, engine: { dtype: 'float16' } };
    expect(fedBy({ policy: half })!.weights).toBe(adapters + whole.weights / 2);
    const connector = { lora: null, train: { mm_vision: false, mm_mlp: true, mm_llm: false } };
    expect(fedBy({ policy: connector })!.weights).toBe(whole.weights);
  });
});

/** What is said where so much is fed on CUDA. */
function textOf(fed: FedPerStep): string | undefined {
  try {
    refuseFed(fed, 'cuda');
  } catch (error) {
    return (error as EngineError).toText();
  }
  return undefined;
}

describe('sampling on a device', () => {
  it('is refused above a limit, with what is fed and what to use', () => {
    const fed = { caches: 6 * GIB, weights: 2 * GIB + 1, answers: 64 };
    expect(textOf(fed)).toMatchInlineSnapshot(`
      "policy.engine.provider: sampling on cuda: found 6.0 GiB of key and value caches of 64 answers and 2.0 GiB of weights, which are copied to the device at every token; allowed: 8.0 GiB together
        Let vLLM sample (rollout.engine), decode fewer answers at once (rollout.chunk_groups), make them shorter (rollout.max_response_tokens), lower policy.model_context_size, which prompts are taken to fill, or set policy.engine.provider to 'cpu'."
    `);
    expect(textOf({ ...fed, weights: MOST_FED + 1 })).toMatch(
      /\n {2}Let vLLM sample \(rollout\.engine\), or set policy\.engine\.provider to 'cpu'\.$/,
    );
    expect(textOf({ ...fed, weights: 0, caches: MOST_FED + 1 })).toContain(
      'sampling on cuda: found 8.0 GiB of key and value caches of 64 answers, which are copied to the device at every token; allowed: 8.0 GiB together',
    );
  });

  it('is allowed up to it, and where it lies there', () => {
    expect(() => refuseFed({ caches: MOST_FED - 5, weights: 5, answers: 1 }, 'cuda')).not.toThrow();
    expect(() => refuseFed({ caches: 2 * MOST_FED, weights: 0, answers: 1 }, 'cpu')).not.toThrow();
    expect(() => refuseFed(null, 'cuda')).not.toThrow();
  });
});
