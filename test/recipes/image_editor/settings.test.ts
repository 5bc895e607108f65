/** What the settings of image_editor refuse, and what reads its instructions. */
import type { Datasets } from '../../../src/data/datasets.js';
import { describe, expect, it } from 'vitest';
import { openInstructions } from '../../../src/recipes/image_editor/instructions.js';
import type { ImageEditorSettings } from '../../../src/recipes/image_editor/settings.js';
import { recipeOf } from '../../../src/recipes/settings.js';
import type { VisionEditSource } from '../../../src/recipes/shared/images/edits.js';
import { smallConfig } from '../small_config.js';

const { problemsOf, smallSettings } = smallConfig<ImageEditorSettings>({
  run_name: 'r',
  task: 'image_editor',
  num_iterations: 1,
  algorithm: { type: 'grpo' },
  optimizer: { learning_rate: 1e-3 },
  rollout: { episodes_per_iteration: 8, generations_per_sample: 4 },
  policy: { init: { num_layers: 1, attention_head_dim: 12, num_attention_heads: 2, patch: 8 } },
  data: { train: [{ path: 'train' }], validation: [{ path: 'validation' }], tiny: {} },
  reward: { endpoint: 'embedded', model: 'editrl-rule-judge' },
});

const init = undefined;
const nft = { type: 'grpo', surrogate: 'nft', clip_range: null };

describe('the settings of image_editor', () => {
  it.each([
    [{ policy: { init, model: 'm', init_: 1 } }, 'policy.init_'],
    [{ policy: { lora: {} } }, 'policy.lora'],
    [{ policy: { engine: { dtype: 'float16' } } }, 'policy.engine.dtype'],
    [{ policy: { init, model: 'm', lora: {}, engine: { dtype: 'float16', provider: 'cuda' } } }, 'policy.engine.dtype'],
    [{ policy: { parts: { text_encoder: 't' } }, reader: { model: 'm' } }, 'reader'],
    [{ data: { tiny: { cell: 5 } } }, 'data.tiny.grid x data.tiny.cell'],
    [{ rollout: { num_steps: 4, sde_window: { size: 3, range: [2, 4] } } }, 'rollout.sde_window'],
    [{ rollout: { guidance_scale: 3 } }, 'rollout.guidance_scale'],
    [{ algorithm: nft }, 'rollout.noise_level'],
    [{ algorithm: { type: 'sft', sft: { batch_size: 12 } } }, 'algorithm.sft.batch_size'],
  ])('reject %j at its key', (changes, key) => {
    expect(problemsOf(changes).map((problem) => problem.split(': ')[0])).toContain(key);
  });

  it.each([
    [{}],
    [{ policy: { init, model: 'm', lora: {}, engine: { dtype: 'float16' } } }],
    [{ algorithm: nft, rollout: { noise_level: 0 } }],
    [{ algorithm: { type: 'sft', sft: { batch_size: 8 } } }],
    [{ policy: { parts: { text_encoder: 't' } }, data: { tiny: null } }],
  ])('allow %j', (changes) => {
    expect(problemsOf(changes)).toEqual([]);
  });

  it.each([
    [{}, []],
    [{ prompt: { system: 'You edit.' }, reader: { model: 'm' } }, []],
    [
      { prompt: { system: 'You edit.' } },
      ['prompt has no effect without a reader: a text encoder reads only the instruction'],
    ],
    [{ prompt: { variables: { add_vision_id: true } } }, [expect.stringContaining('prompt has no effect')]],
  ])('warn of %j without a reader of it', (changes, warnings) => {
    const settings = smallSettings({ algorithm: { type: 'grpo', clip_range: null }, ...changes });
    expect(recipeOf(settings).warnings(settings)).toEqual(warnings);
  });

  it('name what a model of real size lacks', () => {
    const missing = (changes: Parameters<typeof smallSettings>[0]): readonly string[] => {
      const settings = smallSettings(changes);
      return recipeOf(settings).missing(settings);
    };
    expect(missing({})).toEqual([]);
    expect(missing({ policy: { init } })).toEqual([expect.stringContaining('policy.model is null')]);
    const real = missing({ policy: { model_type: 'flux' }, data: { tiny: null } });
    expect(real).toEqual([
      expect.stringContaining('reader and policy.parts.text_encoder are both null'),
      expect.stringContaining('policy.parts.vae is null'),
    ]);
  });
});

describe('instructions of the tiny world', () => {
  const noData = {} as Datasets<VisionEditSource>;
  const source = (instruction: string) =>
    ({ edits: { read: () => ({ instruction, where: 'rows.jsonl:1' }) } }) as unknown as VisionEditSource;

  it('are read word by word, with a place for each', async () => {
    const instructions = await openInstructions(smallSettings(), noData, () => '');
    const { text, blank } = await instructions.read(source('remove the red circle'), 0, false);
    if (!('text' in text)) throw new Error('states of a model');
    expect(text.text.length % instructions.width).toBe(0);
    const rows = Array.from({ length: text.text.length / instructions.width }, (_, at) =>
      text.text.slice(at * instructions.width, (at + 1) * instructions.width),
    );
    expect(rows.map((row) => row.reduce((sum, one) => sum + one, 0))).toEqual(rows.map(() => 2));
    expect(blank).toBeNull();
    const other = await instructions.read(source('remove the red square'), 0, false);
    const differing = rows.filter((row, at) => {
      const next = 'text' in other.text ? other.text.text : new Float32Array(0);
      return row.some((one, i) => one !== next[at * instructions.width + i]);
    });
    expect(differing).toHaveLength(1);
  });

  it('are rejected if they are longer than what is read', async () => {
    const instructions = await openInstructions(smallSettings(), noData, () => '');
    const long = 'add the red circle at b3 and the blue square at c4';
    await expect(instructions.read(source(long), 0, false)).rejects.toMatchObject({
      name: 'DataError',
      where: 'rows.jsonl:1',
    });
  });
});
