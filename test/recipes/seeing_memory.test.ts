import { describe, expect, it } from 'vitest';
import { readArchitecture } from '../../src/compute/nets/decoder/architectures.js';
import { seeingAdapterParameters, seeingParameters, visionActivations } from '../../src/recipes/shared/memory.js';
import { openDecoder } from '../../src/models/networks/decoder.js';
import { partOf, type TrainedParts, withoutTables } from '../../src/compute/nets/vision/config.js';
import { withAdapter, decoderAdapter } from '../../src/compute/nets/decoder/config.js';
import { seeingPart } from '../../src/recipes/shared/tokens/settings.js';
import { families, folderOf } from '../compute/nets/vision/fixture.js';
import { smallSettings } from './video_actions/small.js';

const parts = ['mm_vision', 'mm_mlp', 'mm_llm'] as const;

/** Qwen2.5-VL-7B's, by its config.json. */
const vision = {
  family: 'qwen2_5_vl',
  ...withoutTables,
  depth: 32,
  width: 1280,
  inner: 3420,
  num_heads: 16,
  patch_size: 14,
  temporal_patch_size: 2,
  spatial_merge_size: 2,
} as const;

describe('the size of a model that sees', () => {
  it.each(families)('is counted part by part, but for biases and norms: %s', (family) => {
    const { config, weights } = openDecoder(folderOf(family), 'words and images');
    const counted = (of: keyof TrainedParts): number =>
      [...weights]
        .filter(([name, tensor]) => partOf(name) === of && tensor.shape.length > 1)
        .reduce((sum, [, { data }]) => sum + data.length, 0);
    const found = seeingParameters(config, config.vision!);
    expect(found.mm_vision).toBe(counted('mm_vision'));
    expect(found.mm_mlp).toBe(counted('mm_mlp'));
    expect(found.mm_llm).toBe(counted('mm_llm'));
  });

  it('is that of Qwen3-VL-8B, as transformers counts its matrices', () => {
    // Its shape is that of torchtitan's "8B" and of transformers' defaults for the encoder, the counts are of
    // Qwen3VLForConditionalGeneration on torch's device without memory.
    const shape = {
      ...{ hidden_size: 4096, intermediate_size: 12_288, num_hidden_layers: 36, num_attention_heads: 32 },
      ...{ num_key_value_heads: 8, head_dim: 128, vocab_size: 151_936, tie_word_embeddings: false },
    };
    const { vision: encoder } = readArchitecture(
      { model_type: 'qwen3_vl', text_config: shape, vision_config: { out_hidden_size: 4096 } },
      'config.json',
      'words and images',
    ).config;
    expect(seeingParameters(shape, encoder!)).toEqual({
      mm_vision: 415_494_144,
      mm_mlp: 160_432_128,
      mm_llm: 8_190_427_136,
    });
  });

  it.each(families)('is that of adapters on the parts that have some: %s', (family) => {
    const { config } = openDecoder(folderOf(family), 'words and images');
    const lora = { rank: 3, alpha: 6, rslora: false, targets: 'all-linear' };
    const most = seeingAdapterParameters(config, config.vision!, 3);
    for (const part of parts) {
      const only = { mm_vision: false, mm_mlp: false, mm_llm: false, [part]: true };
      const sizes = [...decoderAdapter(withAdapter(config, lora, only)).values()].map(([a, b]) => a * b);
      const found = sizes.reduce((sum, size) => sum + size, 0);
      expect(found).toBeLessThanOrEqual(most[part]);
      expect(found).toBeGreaterThan(0.8 * most[part]);
    }
  });

  it('keeps of a frozen encoder what the block that is due needs', () => {
    const patches = 4096;
    expect(visionActivations(vision, patches, patches, true)).toBe(
      33 * visionActivations(vision, patches, patches, false),
    );
    expect(visionActivations(vision, patches, 64, true)).toBeLessThan(visionActivations(vision, patches, 4096, true));
  });

  it('keeps of a decoder that does not train what gradients need to pass through it', () => {
    const grows = (mm_llm: boolean, lora: object | null): number => {
      const [few, many] = [4, 8].map((per_device_batch_size) => {
        const { optimizer } = smallSettings();
        const policy = { train: { mm_vision: false, mm_mlp: true, mm_llm } };
        const settings = smallSettings({ optimizer: { ...optimizer, per_device_batch_size }, policy });
        const adapted = { ...settings, policy: { ...settings.policy, lora } } as typeof settings;
        return seeingPart.learns.memory(adapted, () => null) ?? 0;
      });
      return many - few;
    };
    // Four answers of 8 tokens to one more prompt of 88, in a layer and one whose gradient is due.
    const less = 4 * 1.15 * 2 * (88 + 4 * 8) * (3 * 16 + 24);
    const lora = { rank: 4, alpha: 8 };
    expect(grows(true, null) - grows(false, null)).toBeCloseTo(less, 3);
    expect(grows(true, null) - grows(true, lora)).toBeCloseTo(0, 3);
    expect(grows(false, lora)).toBeCloseTo(grows(false, null), 3);
  });

  it.each([
    ['grpo', {}],
    ['sft', { algorithm: { type: 'sft', sft: { batch_size: 8 } } }],
  ])('grows with the prompts that a run may see, and with what is frozen: %s', (_, changes) => {
    const bytes = (more: Readonly<Record<string, unknown>>): number =>
      seeingPart.learns.memory({ ...smallSettings(changes), ...more }, () => null) ?? 0;
    const few = bytes({ num_iterations: 1 });
    const many = bytes({ num_iterations: 100_000 });
    expect(many - few).toBeGreaterThan(2 ** 30);
    expect(many - few).toBeLessThan(2 ** 31);
    const { policy } = smallSettings(changes);
    const wide = { ...policy, pixels: { ...policy.pixels, video: { min_pixels: 1024, max_pixels: 2048 } } };
    expect(bytes({ num_iterations: 1, policy: wide })).toBeGreaterThan(few);
  });
});
