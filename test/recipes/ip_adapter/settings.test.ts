/** What the settings of ip_adapter refuse, each in one line. */
import type { ModelShape, ShapeOf } from '../../../src/recipes/shared/memory.js';
import { describe, expect, it } from 'vitest';
import type { Devices } from '../../../src/launch/machine/devices.js';
import { memoryOf } from '../../../src/launch/machine/estimate.js';
import { shapesOf } from '../../../src/launch/machine/shapes.js';
import { openRecipeOf } from '../../../src/recipes/open.js';
import { validate } from '../../../src/config/validate.js';
import { isObject } from '../../../src/core/schema/walk.js';
import { recipeOf } from '../../../src/recipes/settings.js';
import type { TrainedSettings } from '../../../src/config/schema/run.js';
import { writeBench } from '../../data/bench.js';
import { plain } from '../../data/image_files.js';
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
  it.each([
    [{ rollout: { num_steps: 4, sde_window: { size: 3, range: [2, 4] } } }, 'rollout.sde_window'],
    [{ rollout: { num_steps: 1 } }, 'rollout.num_steps'],
    [{ rollout: { guidance_scale: 3 } }, 'rollout.guidance_scale'],
    [
      { rollout: { guidance_scale: 3 }, algorithm: { type: 'sft', sft: { condition_dropout: 0 } } },
      'rollout.guidance_scale',
    ],
    [{ policy: { train: 'adapter' } }, 'policy.train'],
    [{ policy: { train: 'lora', lora: {} } }, 'policy.train'],
    [{ policy: { init: null, model: 'folder', train: 'lora' } }, 'policy.lora'],
    [{ policy: { init: null, model: 'folder', train: 'adapter', lora: {} } }, 'policy.train'],
    [{ policy: { init: null, model: 'folder', train: 'lora', lora: {}, ip_adapter: {} } }, 'policy.ip_adapter'],
    [{ policy: { engine: { dtype: 'float16' } } }, 'policy.engine.dtype'],
    [{ policy: { ip_adapter: {} } }, 'policy.ip_adapter'],
    [{ policy: { init: { attention_head_dim: 7 } } }, 'policy.init.attention_head_dim'],
    [{ policy: { init: { patch: 5 } } }, 'data.tiny.width', 'data.tiny.height'],
    [{ policy: { init: { text_length: 2 } } }, 'policy.init.text_length'],
    [{ policy: { model: 'folder' } }, 'policy.init'],
    [{ rollout: { generations_per_sample: 1 } }, 'rollout.generations_per_sample'],
    [{ validation: { temperature: 0.5 } }, 'validation.temperature'],
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
      'algorithm.clip_range',
      'algorithm.clip_range_high',
      'rollout.noise_level',
      'rollout.sde_window',
      'rollout.same_latent',
      'algorithm.advantage.clip',
      'algorithm.nft.levels',
      'algorithm.nft.sampled_by',
    ],
    [{ rollout: { noise_level: 0 } }, 'rollout.noise_level'],
    [{ policy: { engine: { dtype: 'float16', provider: 'cuda' } } }, 'policy.engine.dtype', 'policy.engine.dtype'],
  ] as const)('refuse %o', (changes: Sections, ...keys) => {
    expect(problemsOf(changes).map((one) => one.slice(0, one.indexOf(':')))).toEqual(keys);
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

  it('need a warm-up that has seen images without words, where they are guided, before it is made', () => {
    const warmUp = (dropout: number) =>
      settingsOf({ run_name: 'warm', algorithm: { type: 'sft', sft: { condition_dropout: dropout } } });
    const guided = settingsOf({
      policy: { init: null, model: { run: 'warm', config: 'warm.jsonnet' } },
      rollout: { guidance_scale: 3 },
    });
    const look = (dropout: number): void => {
      const shapeOf = shapesOf(new Map([['warm', warmUp(dropout)]]));
      for (const { name, run } of openRecipeOf(guided).checks(guided, shapeOf)) {
        if (name.startsWith('guidance')) run();
      }
    };
    expect(() => look(0)).toThrow(
      'rollout.guidance_scale is set, but the model has no unconditional branch: it was trained with condition_dropout 0',
    );
    expect(() => look(0.1)).not.toThrow();
  });

  it('need prompts that quote a text where a reward compares with it, whoever reads them', () => {
    const quoted = (changes: Sections): unknown => {
      const settings = settingsOf(over({ policy: { parts: { text_encoder: 'words' } } }, changes));
      return openRecipeOf(settings)
        .checks(settings, () => null)
        .flatMap(({ name }) => /^inpainting \["(\w+)",\{"quoted":(\w+)/.exec(name) ?? [])
        .filter((_, i) => i % 3 > 0);
    };
    const both = (train: boolean, validation: boolean) => ['train', String(train), 'validation', String(validation)];
    expect(quoted({})).toEqual(both(true, true));
    expect(quoted({ algorithm: { type: 'sft' } })).toEqual(both(false, true));
    expect(quoted({ reward: { mode: 'jpeg_size' } })).toEqual(both(false, false));
    expect(quoted({ reward: { mode: 'jpeg_size', also_compute: ['ocr'] } })).toEqual(both(true, true));
    expect(quoted({ policy: { parts: { text_encoder: null } }, reward: { mode: 'jpeg_size' } })).toEqual(
      both(true, true),
    );
    const remote = { name: 'remote', weight: 1, endpoint: 'http://127.0.0.1:4876' };
    const pool = (terms: object | null): unknown => quoted({ reward: { mode: null, terms: [{ ...remote, terms }] } });
    expect(pool({ ocr: 0.5, align_quality: 0.5 })).toEqual(both(true, true));
    expect(pool({ ocr_confidence: 1 })).toEqual(both(false, false));
    expect(pool(null)).toEqual(both(false, false));
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

  it('estimate the memory for the user’s images once they can be read, and name settings that make a run smaller', () => {
    const own = (folder: string) => ({ tiny: null, train: [{ path: folder }], validation: [{ path: folder }] });
    const machine = { free: 1, total: 2 ** 34 };
    const memory = (data: Sections) =>
      memoryOf(
        shapesOf(new Map()),
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
    expect(memory(own(small)).verdict()).toMatchObject({
      neverFits: false,
      advice: expect.stringMatching(/^lower optimizer\.per_device_batch_size/) as string,
    });
  });
});
