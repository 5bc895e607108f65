/** What the settings of ip_adapter refuse, each in one line. */
import type { ModelShape, ShapeOf } from '../../../src/recipes/shared/memory.js';
import { describe, expect, it } from 'vitest';
import type { Devices } from '../../../src/launch/machine/devices.js';
import { memoryOf, shapesOf } from '../../../src/launch/machine/memory.js';
import { checkNeed } from '../../../src/launch/preflight/needs.js';
import { validate } from '../../../src/config/validate.js';
import { noisyRange } from '../../../src/policies/flow/steps.js';
import { isObject } from '../../../src/schema/walk.js';
import { recipeOf } from '../../../src/recipes/settings.js';
import type { TrainedSettings } from '../../../src/schema/run.js';
import { writeBench } from '../../data/bench.js';
import { plain } from '../../data/pictures.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('ip-adapter-settings');

const base = {
  run_name: 'r',
  task: 'ip_adapter',
  num_iterations: 1,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 1e-3 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4 },
  policy: {
    model_type: 'tiny',
    train: 'all',
    init: {
      num_layers: 1,
      attention_head_dim: 12,
      num_attention_heads: 2,
      patch: 4,
      text_length: 3,
      ip_adapter: { tokens: 2 },
    },
  },
  data: { train: [{ path: 'train' }], validation: [{ path: 'validation' }], tiny: {} },
  reward: { mode: 'ocr' },
};

type Sections = Readonly<Record<string, unknown>>;

/** One object over another, section by section. */
function over(under: Sections, changes: Sections): Sections {
  const changed = Object.entries(changes).map(([key, value]) => {
    const old = under[key];
    return [key, isObject(value) && isObject(old) ? over(old, value) : value];
  });
  return { ...under, ...(Object.fromEntries(changed) as Sections) };
}

function problemsOf(changes: Sections): string[] {
  const validated = validate(over(base, changes));
  return 'problems' in validated ? validated.problems.map(({ key, message }) => `${key}: ${message}`) : [];
}

function settingsOf(changes: Sections): TrainedSettings {
  const validated = validate(over(base, changes));
  if ('problems' in validated) throw new Error(JSON.stringify(validated.problems));
  return validated.settings as TrainedSettings;
}

describe('the settings of ip_adapter', () => {
  it('stand as they are, and by ppo', () => {
    expect(problemsOf({})).toEqual([]);
    const { algorithm } = settingsOf({ algorithm: { type: 'ppo' } });
    expect(algorithm).toMatchObject({
      minibatches: 2,
      clip_range: 1e-4,
      drop_zero_spread: true,
      advantage: { scope: 'batch', clip: 5 },
    });
  });

  it('counts the noisy steps as the sampler does, where the product falls just below a whole number', () => {
    // 50 * 0.58 is 28.999999999999996 in doubles.
    const rollout = { num_steps: 50, timestep_fraction: 0.58 };
    const all = { noiseLevel: 0.7, fraction: 0.58, window: null };
    expect(noisyRange(50, all, 0)).toEqual([0, 29]);
    const settings = settingsOf({ rollout, optimizer: { per_device_batch_size: 1 } });
    expect(recipeOf(settings).microBatches(settings)).toBe(8 * 29);
    const window = { size: 29, range: [0, 50] as const };
    expect(noisyRange(50, { ...all, window }, 0)).toEqual([0, 29]);
    expect(problemsOf({ rollout: { ...rollout, sde_window: window } })).toEqual([]);
  });

  it.each([
    [
      { rollout: { num_steps: 4, sde_window: { size: 3, range: [2, 4] } } },
      'rollout.sde_window: found 3 steps within [2, 4), but only 3 of rollout.num_steps 4 are noisy; allowed: a window that fits, or more steps',
    ],
    [
      { rollout: { num_steps: 1 } },
      'rollout.num_steps: found 1, of which rollout.timestep_fraction 0.99 leaves none to learn from; allowed: more steps',
    ],
    [
      { rollout: { guidance_scale: 3 } },
      'rollout.guidance_scale: found 3 with policy.init, whose model has no unconditional branch yet; allowed: null, or policy.model',
    ],
    [
      { rollout: { guidance_scale: 3 }, algorithm: { type: 'sft', sft: { condition_dropout: 0 } } },
      'rollout.guidance_scale: found 3 with algorithm.sft.condition_dropout 0, which leaves the model without the unconditional branch that guidance is measured from; allowed: null, or a dropout such as 0.1',
    ],
    [
      { policy: { train: 'adapter' } },
      "policy.train: found 'adapter' with policy.init, whose other weights nobody has trained; allowed: 'all', or 'adapter' with policy.model",
    ],
    [
      { policy: { train: 'lora', lora: {} } },
      "policy.train: found 'lora' with policy.init, whose other weights nobody has trained; allowed: 'all', or 'lora' with policy.model",
    ],
    [
      { policy: { init: null, model: 'folder', train: 'lora' } },
      "policy.lora: found null with policy.train 'lora'; allowed: {} for its defaults, or {rank, alpha, …}",
    ],
    [
      { policy: { init: null, model: 'folder', train: 'adapter', lora: {} } },
      'policy.train: found "adapter" with policy.lora, which is then not trained; allowed: \'lora\', or policy.lora: null',
    ],
    [
      { policy: { init: null, model: 'folder', train: 'lora', lora: {}, ip_adapter: {} } },
      "policy.ip_adapter: found with policy.train 'lora', which would leave it as it begins, without effect; allowed: null",
    ],
    [
      { policy: { engine: { dtype: 'float16' } } },
      "policy.engine.dtype: found 'float16' with policy.train 'all'; allowed: with 'adapter' or 'lora', whose frozen weights are held so, or 'float32'",
    ],
    [
      { policy: { ip_adapter: {} } },
      'policy.ip_adapter: found with policy.init, which says it itself; allowed: policy.init.ip_adapter',
    ],
    [
      { policy: { init: { attention_head_dim: 7 } } },
      'policy.init.attention_head_dim: found 7; allowed: an even number of at least 6, as positions need',
    ],
    [
      { policy: { init: { patch: 5 } } },
      'data.tiny.width: found 32; allowed: a multiple of policy.init.patch (5)',
      'data.tiny.height: found 16; allowed: a multiple of policy.init.patch (5)',
    ],
    [
      { policy: { init: { text_length: 2 } } },
      'policy.init.text_length: found 2; allowed: at least data.tiny.letters (3)',
    ],
    [
      { policy: { model: 'folder' } },
      'policy.init: found both policy.model and policy.init; set one of them to null: a checkpoint brings its own architecture',
    ],
    [
      { rollout: { generations_per_sample: 1 } },
      "rollout.generations_per_sample: found 1; allowed: 2 or more, because GRPO compares the answers of one prompt (those of others, too, with algorithm.advantage.scope 'batch')",
    ],
    [
      { validation: { temperature: 0.5 } },
      'validation.temperature: unknown key; allowed: every_n_iterations, greedy, measure, prompts, seed, weights',
    ],
    [
      { algorithm: { kl_estimator: 'k2' } },
      'algorithm.kl_estimator: unknown key; allowed: advantage, clip_range, clip_range_high, drop_zero_spread, inner_epochs, kl_coeff, minibatches, nft, reward_scale, surrogate, type, warmup_steps',
    ],
    [
      {
        algorithm: {
          surrogate: 'nft',
          clip_range_high: 2e-4,
          advantage: { clip: null },
          nft: { levels: 10, sampled_by: 'average' },
        },
        rollout: { sde_window: { size: 2, range: [0, 5] }, same_latent: true },
      },
      "algorithm.clip_range: found 0.0001 with surrogate 'nft', which has no ratio to clip; allowed: null",
      "algorithm.clip_range_high: found 0.0002 with surrogate 'nft', which has no ratio to clip; allowed: null",
      "rollout.noise_level: found 0.7 with algorithm.surrogate 'nft', which learns from pictures and not from noisy steps; allowed: 0",
      "rollout.sde_window: found with algorithm.surrogate 'nft', which has no noisy steps; allowed: null",
      "rollout.same_latent: found true with algorithm.surrogate 'nft', whose pictures differ by their first noise alone: a group's would all be the same; allowed: false",
      "algorithm.advantage.clip: found null with algorithm.surrogate 'nft', to which this advantage is as good as it gets; allowed: a number above 0",
      'algorithm.nft.levels: found 10; allowed: at most the 9 levels that rollout.timestep_fraction 0.99 leaves of rollout.num_steps 10, or null for all',
      "algorithm.nft.sampled_by: found 'average' without optimizer.ema_decay, which makes the averages; allowed: 'current', or set it",
    ],
    [
      { rollout: { noise_level: 0 } },
      "rollout.noise_level: found 0, which leaves no noisy step to learn from; allowed: a number above 0, or algorithm.surrogate 'nft'",
    ],
    [
      { policy: { engine: { dtype: 'float16', provider: 'cuda' } } },
      "policy.engine.dtype: found 'float16' with policy.train 'all'; allowed: with 'adapter' or 'lora', whose frozen weights are held so, or 'float32'",
      "policy.engine.dtype: found 'float16' with policy.engine.provider 'cuda', to which each matrix would be copied for each of its uses; allowed: 'float32', or provider 'cpu' or 'webgpu'",
    ],
  ] as const)('refuse %o', (changes, ...messages) => {
    expect(problemsOf(changes)).toEqual(messages);
  });

  it.each([
    [{ rollout: { num_steps: 36, timestep_fraction: 1 } }, 36],
    [{ rollout: { num_steps: 36, sde_window: { size: 2, range: [0, 6] } } }, 2],
    [{ rollout: { num_steps: 10 } }, 9],
  ])('have an action for each optimizer step: %j', (given, noisy) => {
    const problemsWith = (minibatches: number): unknown => {
      const rollout = { episodes_per_iteration: 2, generations_per_sample: 2, ...given.rollout };
      return problemsOf({ rollout, algorithm: { type: 'grpo', minibatches } });
    };
    expect(JSON.stringify(problemsWith(2 * noisy + 1))).toContain(`allowed: at most the ${2 * noisy} actions`);
    expect(problemsWith(2 * noisy)).toEqual([]);
  });

  it('take groups of one, whose advantages are over the batch, and minibatches of any number', () => {
    const rollout = { episodes_per_iteration: 8, generations_per_sample: 1 };
    expect(problemsOf({ algorithm: { type: 'ppo', minibatches: 3 }, rollout })).toEqual([]);
    expect(problemsOf({ algorithm: { minibatches: 5 } })).toEqual([]);
    const nft = { algorithm: { surrogate: 'nft', clip_range: null, nft: { levels: 3 } }, rollout: { noise_level: 0 } };
    expect(problemsOf(nft)).toEqual([]);
    const settings = settingsOf({ ...nft, optimizer: { per_device_batch_size: 1 } });
    expect(recipeOf(settings).microBatches(settings)).toBe(8 * 3);
  });

  it('need a warm-up that has seen pictures without words, where they are guided, before it is made', () => {
    const warmUp = (dropout: number) =>
      settingsOf({ run_name: 'warm', algorithm: { type: 'sft', sft: { condition_dropout: dropout } } });
    const guided = settingsOf({
      policy: { init: null, model: { run: 'warm', config: 'warm.jsonnet' } },
      rollout: { guidance_scale: 3 },
    });
    const look = (dropout: number): void => {
      const shapeOf = shapesOf(new Map([['warm', warmUp(dropout)]]));
      for (const need of recipeOf(guided).needs(guided, shapeOf)) if (need.kind === 'guidance') checkNeed(need);
    };
    expect(() => look(0)).toThrow(
      'rollout.guidance_scale is set, and the model has no unconditional branch: it was trained with condition_dropout 0',
    );
    expect(() => look(0.1)).not.toThrow();
  });

  it('need prompts that quote a text where a reward compares with it, whoever reads them', () => {
    const quoted = (changes: Sections): unknown => {
      const settings = settingsOf(over({ policy: { parts: { text_encoder: 'words' } } }, changes));
      const lists = recipeOf(settings)
        .needs(settings, () => null)
        .filter((need) => need.kind === 'self_bench');
      return lists.map(({ path, quoted: isQuoted }) => [path, isQuoted]);
    };
    const both = (train: boolean, validation: boolean) => [
      ['train', train],
      ['validation', validation],
    ];
    expect(quoted({})).toEqual(both(true, true));
    expect(quoted({ algorithm: { type: 'sft' } })).toEqual(both(false, true));
    expect(quoted({ reward: { mode: 'jpeg_size' } })).toEqual(both(false, false));
    expect(quoted({ reward: { mode: 'jpeg_size', also_compute: ['ocr'] } })).toEqual(both(true, true));
    expect(quoted({ policy: { parts: { text_encoder: null } }, reward: { mode: 'jpeg_size' } })).toEqual(
      both(true, true),
    );
    const remote = { name: 'remote', weight: 1, endpoint: 'http://127.0.0.1:4900' };
    const pool = (terms: object | null): unknown => quoted({ reward: { mode: null, terms: [{ ...remote, terms }] } });
    expect(pool({ ocr: 0.5, align_quality: 0.5 })).toEqual(both(true, true));
    expect(pool({ ocr_confidence: 1 })).toEqual(both(false, false));
    expect(pool(null)).toEqual(both(false, false));
  });

  it('lack what is not computed yet', () => {
    const missing = (policy: Sections): readonly string[] => {
      const settings = settingsOf({ policy });
      const recipe = recipeOf(settings);
      return recipe.missing(settings);
    };
    expect(missing({})).toEqual([]);
    const started = { model_type: 'flux', model: 'folder', init: null };
    expect(missing({ ...started, train: 'all' })).toEqual([
      expect.stringMatching(/^policy\.parts\.vae is null, and policy\.model_type 'flux' needs it/),
      expect.stringMatching(/^policy\.parts\.text_encoder is null/),
    ]);
    const parts = { vae: 'vae', text_encoder: 'words' };
    expect(missing({ ...started, train: 'adapter', parts })).toEqual([
      expect.stringMatching(/^policy\.parts\.image_encoder is null/),
    ]);
    expect(missing({ ...started, train: 'adapter', parts: { ...parts, image_encoder: 'looks' } })).toEqual([]);
  });

  it('tell what memory a run takes', () => {
    const settings = settingsOf({});
    expect(recipeOf(settings).memory(settings, () => null)).toBeGreaterThan(300 * 2 ** 20);
    // What reads prompts, and of a whole SigLIP what looks at style images.
    const [words, around] = [{ text_encoder: 'words' }, { text_encoder: 'words', image_encoder: 'siglip' }].map(
      (parts) => settingsOf({ policy: { parts } }),
    );
    const shapes: Readonly<Record<string, ModelShape>> = {
      words: { kind: 'graphs', bytes: 7e9 },
      siglip: { kind: 'graphs', bytes: 9e9, visionBytes: 5e9 },
    };
    const shapeOf: ShapeOf = (reference) => (typeof reference === 'string' ? shapes[reference] : null);
    const without = recipeOf(words).memory(words, () => null)!;
    expect(recipeOf(around).memory(around, shapeOf)).toBe(without + 7e9 + 5e9);
    // Held in float16, of what reads prompts what is said of that; an export holds what its file does.
    const start = { init: null, model: 'model', train: 'lora', lora: {}, engine: { dtype: 'float16' } };
    const model: ModelShape = {
      ...{ kind: 'flow', width: 8, heads: 1, layers: 1, singleLayers: 0, textWidth: 4, patch: 1 },
      ...{ imagePrompt: null, conditionDropout: null },
    };
    const bytesOf = (text_encoder: ModelShape | null): number => {
      const half = settingsOf({ policy: { ...start, parts: { text_encoder: 'words' } } });
      return recipeOf(half).memory(half, (reference) => (reference === 'model' ? model : text_encoder))!;
    };
    const graphs = { kind: 'graphs', bytes: 9e9, wordsBytes: 7e9 } as const;
    expect(bytesOf({ ...graphs, wordsHalfBytes: 3e9 }) - bytesOf(null)).toBe(3e9);
    expect(bytesOf(graphs) - bytesOf(null)).toBe(7e9);
  });

  it('count what blocks keep, or their inputs and three blocks where they are computed again', () => {
    const depth = { num_layers: 4, num_single_layers: 8 };
    const [kept, again] = [false, true].map((gradient_checkpointing) => {
      const settings = settingsOf({
        ...{ policy: { init: depth }, optimizer: { gradient_checkpointing } },
        data: { tiny: { width: 32, height: 24 } },
      });
      return recipeOf(settings).memory(settings, () => null)!;
    });
    // Eight pictures of 32 x 24 pixels in patches of 4, beside three letters; two heads of 12.
    const [width, heads, tokens] = [24, 2, (32 * 24) / 16 + 3];
    const block = 8 * tokens * (32 * width + heads * tokens);
    expect((kept - again) / 4).toBeCloseTo((12 - 3) * block - 12 * 8 * tokens * width, 3);
  });

  it('tell what memory pictures of a person’s own take, once they can be looked at, and what makes a run smaller', () => {
    const own = (folder: string) => ({ tiny: null, train: [{ path: folder }], validation: [{ path: folder }] });
    const machine = { free: 1, total: 2 ** 34 };
    const memory = (data: Sections) =>
      memoryOf(
        new Map(),
        { gpus: [] } as unknown as Devices,
        machine,
      )(settingsOf({ policy: { init: { patch: 2 } }, data }));
    const [small, large] = [
      writeBench(newFolder()),
      writeBench(newFolder(), { '12_ref.png': plain(60, 40, [1, 2, 3]) }),
    ];
    expect(memory(own(small)).bytes).toBeLessThan(memory({ tiny: {} }).bytes!);
    expect(memory(own(large)).bytes).toBeGreaterThan(memory({ tiny: {} }).bytes!);
    expect(memory(own('nowhere')).bytes).toBeGreaterThan(50 * memory(own(large)).bytes!);
    expect(memory(own(small)).verdict).toMatchObject({
      hopeless: false,
      advice: expect.stringMatching(/^lower optimizer\.per_device_batch_size, or launch\.processes/) as string,
    });
  });

  it('tell that adapters take less memory and less disk', () => {
    const flux = { kind: 'flow', width: 3072, heads: 24, layers: 19, singleLayers: 38 } as const;
    const shape = {
      ...flux,
      textWidth: 4096,
      patch: 16,
      imagePrompt: { tokens: 4, width: 768 },
      conditionDropout: null,
    };
    const needs = (policy: Sections): { memory: number; parameters: number } => {
      const settings = settingsOf({
        policy: { init: null, model: 'folder', parts: { text_encoder: 'words' }, ...policy },
        data: { tiny: null },
        optimizer: { per_device_batch_size: 1 },
      });
      const recipe = recipeOf(settings);
      return { memory: recipe.memory(settings, () => shape)!, parameters: recipe.parameters(settings, () => shape)! };
    };
    const [all, adapter, lora] = [{ train: 'all' }, { train: 'adapter' }, { train: 'lora', lora: {} }].map(needs);
    // FLUX.1 has 11.9e9 parameters, modulation included; XLabs' IP-Adapter of 19 blocks 0.5e9.
    expect(all.parameters / 11.9e9).toBeCloseTo(1, 0);
    expect(adapter.parameters / 0.5e9).toBeCloseTo(1, 0);
    expect(lora.parameters).toBe(16 * (19 * 50 + 38 * 21) * 3072);
    expect(adapter.memory).toBeLessThan(0.45 * all.memory);
    expect(lora.memory).toBeLessThan(adapter.memory);
    // Each weight once at least.
    expect(lora.memory).toBeGreaterThan(4 * 11.9e9);
    // Held in float16, what is frozen takes half, and the widest matrix is there in float32 besides: six vectors of modulation.
    const half = { engine: { dtype: 'float16' } };
    const widened = 1.15 * 4 * 6 * 3072 ** 2;
    const imagePrompt = adapter.parameters;
    const model = all.parameters - imagePrompt;
    const [ofAdapter, ofLora] = [
      { train: 'adapter', ...half },
      { train: 'lora', lora: {}, ...half },
    ].map(needs);
    expect(adapter.memory - ofAdapter.memory).toBeCloseTo(2 * model - widened, 3);
    expect(lora.memory - ofLora.memory).toBeCloseTo(2 * (model + imagePrompt) - widened, 3);
  });
});
