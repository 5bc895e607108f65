import { describe, expect, it } from 'vitest';
import { type ModelShape } from '../../src/recipes/shared/memory.js';
import type { z } from 'zod';
import { enginesOf, withEngines, recipes } from '../../src/recipes/settings.js';
import type { TrainedRecipe } from '../../src/recipes/recipe.js';
import { isTrainable, recipeNamed, recipeOf } from '../../src/config/recipes.js';
import { decoderEngine, engine } from '../../src/config/schema/model.js';
import type { TrainedSettings } from '../../src/config/schema/run.js';
import { schemaAt } from '../../src/core/schema/walk.js';
import { validate } from '../../src/config/validate.js';
import { loadTrained } from '../config/trained.js';

const trained: readonly TrainedRecipe[] = [recipes.image_edit_tokens, recipes.image_tokenizer, recipes.text_answers];

const policy = { model: { run: 'start', config: 'start.jsonnet' }, tokenizer: { run: 'vq', config: 'vq.jsonnet' } };

function settingsWith(sections: Record<string, object>): TrainedSettings {
  const validated = validate({
    run_name: 'r',
    task: 'image_edit_tokens',
    num_iterations: 1,
    algorithm: { type: 'grpo' },
    optimizer: { learning_rate: 1e-4 },
    policy,
    environment: { model: { run: 'vq', config: 'vq.jsonnet' } },
    reward: { mode: 'viescore', endpoint: 'embedded' },
    data: { train: [{ path: 'train.json' }], validation: [{ path: 'held_out.json' }] },
    ...sections,
  });
  if ('problems' in validated || !isTrainable(validated.settings)) throw new Error(JSON.stringify(validated));
  return validated.settings;
}

describe('the table of recipes', () => {
  it.each(Object.entries(recipes))('knows %s by the name that its schema takes', (name, recipe) => {
    expect(recipe.name).toBe(name);
    expect((recipe.schema.shape['task'] as z.ZodType).safeParse(name).success).toBe(true);
    expect(recipeNamed(name)).toBe(recipe);
  });

  it('knows no other', () => {
    for (const name of ['image_edit_token', 'constructor', null, 3]) expect(recipeNamed(name)).toBeUndefined();
    expect(() => recipeOf({ task: 'toString' })).toThrow('no known recipe: toString');
  });

  it.each(trained)('finds the models and engines of $name where it says', ({ models, engines, schema }) => {
    const at = (key: string) => schemaAt(schema, key.split('.'), undefined);
    for (const key of models) {
      expect([key, at(key)?.safeParse({ run: 'a', config: 'b' }).success]).toEqual([key, true]);
      expect([key, at(key)?.safeParse({ run: 'a' }).success]).toEqual([key, false]);
    }
    // A decoder that trains has number formats of its own.
    const engineAt = (key: string) => (key === 'policy.engine' ? decoderEngine : engine);
    for (const key of engines) expect([key, at(key)]).toEqual([key, engineAt(key)]);
  });
});

describe('the engines of a run', () => {
  it('are changed wherever they stand, and nothing else', async () => {
    const { settings } = await loadTrained({
      file: 'configs/sft_s__rl_s.jsonnet',
      overlays: ['configs/lib/tiny.libsonnet'],
      sets: ['policy.engine.threads=3', 'environment.engine.threads=0', 'rollout.threads=0'],
      env: {},
    });
    const shared = withEngines(settings, (one) => (one.threads === 0 ? { ...one, threads: 2 } : one));
    expect(enginesOf(shared).map(({ threads }) => threads)).toEqual([3, 2]);
    expect(withEngines(shared, (one) => (one.threads === 2 ? { ...one, threads: 0 } : one))).toEqual(settings);
    expect(enginesOf(settings)[1].threads).toBe(0);
  });
});

describe('a run of image_edit_tokens', () => {
  const recipe: TrainedRecipe = recipes.image_edit_tokens;

  describe('needs memory', () => {
    const shape: ModelShape = {
      hidden_size: 64,
      intermediate_size: 128,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 4,
      head_dim: null,
      tie_word_embeddings: false,
    };
    /** L(4d² + 3df) + 2Vd with a vocabulary of 512. */
    const parameters = 2 * (4 * 64 * 64 + 3 * 64 * 128) + 2 * 512 * 64;
    const bytes = (sections: Record<string, object>): number =>
      recipe.memory(settingsWith(sections), () => shape) ?? NaN;

    it('for the frozen reference and the moving average as for a copy of the weights each', () => {
      // One answer as long as the context takes the same as one label.
      const rollout = { max_response_tokens: 4096 };
      const optimizer = { learning_rate: 1e-4, per_device_batch_size: 1 };
      const grpo = bytes({ optimizer, rollout });
      expect(grpo - bytes({ optimizer, rollout, algorithm: { type: 'sft' } })).toBeCloseTo(4 * parameters, 3);
      expect(bytes({ rollout, optimizer: { ...optimizer, ema_decay: 0.999 } }) - grpo).toBeCloseTo(4 * parameters, 3);
    });

    it('for frozen weights as they are and packed for sampling, which takes a fifth more, and for an adapter as for any that are trained', () => {
      const lora = { rank: 4, alpha: 8, rslora: false, targets: 'all-linear' };
      const adapter = 2 * 4 * (8 * 64 + 3 * (64 + 128));
      // Weights, two gradients and what is handed back of one, and two moments of what is trained; without an adapter the reference, too.
      const packing = { rollout: { packed_weights: 'all' } };
      const difference = bytes({}) - bytes({ policy: { ...policy, lora }, ...packing });
      expect(difference).toBeCloseTo(4 * ((6 + 1) * parameters - 6 * adapter - 2.2 * parameters), 3);
      // Where vLLM samples nothing is packed, and no answers are cached.
      const remote = { policy: { ...policy, lora }, rollout: { engine: { type: 'vllm', base_url: 'http://a:1' } } };
      expect(bytes({ policy: { ...policy, lora }, ...packing }) - bytes(remote)).toBeGreaterThan(4 * 1.2 * parameters);
    });

    it('for frozen weights stored in float16 as for half of one copy and the widest of them, and for one if nothing is packed', () => {
      const adapted = { ...policy, lora: { rank: 4 } };
      const [packed, once, half] = [
        bytes({ policy: adapted, rollout: { packed_weights: 'all' } }),
        bytes({ policy: adapted }),
        bytes({ policy: { ...adapted, engine: { dtype: 'float16' } } }),
      ];
      expect(packed - once).toBeCloseTo(4 * 1.2 * parameters, 3);
      expect(once - half).toBeCloseTo(4 * (0.5 * parameters - 1.15 * 64 * 512), 3);
    });

    it('for what answers of one prompt share once, and for layers that are computed again one at a time', () => {
      const context = { model_context_size: 300 };
      const bytesOf = (optimizer: object, rollout: object = {}): number =>
        bytes({
          policy: { ...policy, ...context },
          optimizer: { learning_rate: 1e-4, per_device_batch_size: 4, ...optimizer },
          rollout: { episodes_per_iteration: 16, generations_per_sample: 4, max_response_tokens: 100, ...rollout },
        });
      // Rows of the prompt and of four answers; what each keeps; and their scores, in the two layers and one whose gradient is due.
      const [rows, scores] = [200 + 4 * 100, 200 ** 2 + 4 * 100 * 300];
      const layer = rows * (14 * 64 + 3 * 128) + shape.num_attention_heads * scores;
      const base = bytesOf({ gradient_checkpointing: true }) - 1.15 * 4 * (2 * rows * 64 + 3 * layer);
      expect(bytesOf({}) - base).toBeCloseTo(1.15 * 4 * (2 + 1) * layer, 3);
      // Two of each of two prompts share less; their logits are as many.
      const apart = bytesOf({}, { generations_per_sample: 2 });
      const [rowsApart, scoresApart] = [2 * 200 + 4 * 100, 2 * 200 ** 2 + 4 * 100 * 300];
      const layerApart = rowsApart * (14 * 64 + 3 * 128) + shape.num_attention_heads * scoresApart;
      // As much is held to sample: more held-out prompts are evaluated together than a rollout has answers.
      expect(apart - base).toBeCloseTo(4 * 1.15 * 3 * layerApart, 3);
    });

    it('for the answers that are sampled together, of which a chunk has fewer', () => {
      const sampled = (rollout: object): number =>
        bytes({
          policy: { ...policy, model_context_size: 300 },
          rollout: { episodes_per_iteration: 64, generations_per_sample: 4, max_response_tokens: 100, ...rollout },
          validation: { prompts: 1 },
        });
      // Keys and values of prompts twice, of answers half as much again while they grow, and a row of logits.
      const perGroup = 2 * 2 * 64 * (2 * 200 + 1.5 * 4 * 100) + 4 * 512;
      expect(sampled({}) - sampled({ chunk_groups: 2 })).toBeCloseTo(4 * (16 - 2) * perGroup, 3);
    });
  });
});
