import { afterEach, describe, expect, it, vi } from 'vitest';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import {
  decoderParameters,
  flowAdapterParameters,
  flowModelParameters,
  frozenBytes,
  type FlowModelShape,
  type GraphsShape,
} from '../../../src/recipes/shared/memory.js';
import { readSafetensorsIndex } from '../../../src/core/safetensors.js';
import type { Devices } from '../../../src/launch/machine/devices.js';
import { mainMemory, memoryOf } from '../../../src/launch/machine/estimate.js';
import { cachedInGroup, machineMemory, memoryVerdict } from '../../../src/launch/machine/memory.js';
import { shapesOf } from '../../../src/launch/machine/shapes.js';
import { smallSettings } from '../../recipes/prompt_enhance/small.js';
import { smallSettings as videoSettings } from '../../recipes/video_actions/small.js';
import { smallSettings as textSettings } from '../../recipes/text_answers/small.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('memory');

describe('the memory that is free', () => {
  afterEach(() => void vi.restoreAllMocks());

  it('is what the control group may still take, where that is less than the machine has', () => {
    const machine = machineMemory();
    vi.spyOn(process, 'constrainedMemory').mockReturnValue(2 ** 20);
    expect(machineMemory()).toEqual({ free: 2 ** 20, total: 2 ** 20 });
    vi.spyOn(process, 'availableMemory').mockReturnValue(-cachedInGroup());
    vi.spyOn(process, 'constrainedMemory').mockReturnValue(machine.total);
    // The cache may change between two looks at it.
    expect(machineMemory().free).toBeLessThan(machine.free / 2);
  });

  it.each([
    ['4:memory:/jobs/one\n0::/\n', 'sys/fs/cgroup/memory/jobs/one'],
    ['4:memory:/docker/abc\n', 'sys/fs/cgroup/memory'],
    ['0::/user.slice/one\n', 'sys/fs/cgroup/user.slice/one'],
    ['0::/\n', 'sys/fs/cgroup'],
  ])('counts cached files of the group %j', (groups, folder) => {
    const root = newFolder();
    for (const made of ['proc/self', folder]) mkdirSync(join(root, made), { recursive: true });
    expect(cachedInGroup(root)).toBe(0);
    writeFileSync(join(root, 'proc/self/cgroup'), groups);
    expect(cachedInGroup(root)).toBe(0);
    writeFileSync(join(root, folder, 'memory.stat'), 'active_file 1\ninactive_file 20\ntotal_inactive_file 300\n');
    expect(cachedInGroup(root)).toBe(20);
  });
});

describe('whether the memory of a run fits', () => {
  const gpu = (free: number) => ({ index: 0, uuid: 'GPU-0', name: 'a GPU', memoryBytes: free + 5, usedBytes: 5 });

  it('is asked of each GPU, the fullest first', () => {
    expect(memoryVerdict(100, 2, [gpu(150), gpu(100)])).toEqual({
      fits: true,
      neverFits: false,
      neededBytes: 100,
      freeBytes: 100,
      totalBytes: 105,
      advice: null,
    });
    const verdict = memoryVerdict(101, 2, [gpu(150), gpu(100)]);
    expect(verdict).toMatchObject({ fits: false, freeBytes: 100 });
    expect(verdict.advice).toContain('per_device_batch_size');
  });

  it('is asked of the whole machine if there are none', () => {
    const { freeBytes } = memoryVerdict(1, 1, []);
    expect(memoryVerdict(freeBytes / 4, 1, []).fits).toBe(true);
    expect(memoryVerdict(freeBytes, 8, []).fits).toBe(false);
  });

  it('is hopeless only beyond twice all that there is, for an estimate is good to a factor of two', () => {
    const machine = { free: 10, total: 100 };
    expect(memoryVerdict(100, 2, [], machine)).toMatchObject({ fits: false, neverFits: false, neededBytes: 200 });
    expect(memoryVerdict(201, 1, [], machine)).toMatchObject({ fits: false, neverFits: true, totalBytes: 100 });
    expect(memoryVerdict(210, 2, [gpu(100)], machine).neverFits).toBe(false);
    expect(memoryVerdict(211, 1, [gpu(100)], machine).neverFits).toBe(true);
  });
});

describe('a run that another program trains', () => {
  it('is not estimated by the settings of its own recipe', () => {
    const settings = textSettings({ launch: { command: ['python', 'train.py'] } });
    const memory = memoryOf(shapesOf(new Map()), { gpus: [], cpus: 2 }, { free: 1, total: 1 })(settings);
    expect([memory.bytes, memory.verdict(), mainMemory(memory)]).toEqual([null, null, 0]);
  });
});

describe('a run that does not fit', () => {
  const settings = videoSettings({
    optimizer: { learning_rate: 0.01, per_device_batch_size: 4 },
    policy: { model_context_size: 4096 },
  });
  const adviceAt = (total: number) =>
    memoryOf(shapesOf(new Map()), { gpus: [] } as unknown as Devices, { free: total, total })(settings).verdict()
      ?.advice;
  const { bytes } = memoryOf(shapesOf(new Map()), { gpus: [] } as unknown as Devices)(settings);

  it('is advised of the settings that it has', () => {
    expect(adviceAt(bytes! * 2)).toBeNull();
    expect(adviceAt(bytes! * 0.99)).toBe(
      'lower optimizer.per_device_batch_size, rollout.chunk_groups, policy.model_context_size, launch.processes, set optimizer.gradient_checkpointing to true, or name a smaller model',
    );
    const model = newFolder();
    writeConfig(model, {
      ...{ vocab_size: 64, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 1 },
      ...{ num_key_value_heads: 1, rms_norm_eps: 1e-6, rope_theta: 1e6, max_position_embeddings: 4096 },
      ...{ model_type: 'qwen2', hidden_act: 'silu' },
    });
    const whole = textSettings({ policy: { init: undefined, model } });
    const { verdict } = memoryOf(shapesOf(new Map()), { gpus: [], cpus: 2 }, { free: 1, total: 1 })(whole);
    expect(verdict()?.advice).toContain('train an adapter (policy.lora)');
  });

  it('takes what a process takes where a training server has the policy', () => {
    const trainer = { type: 'tinker', base_url: 'http://server:8000', base_model: 'm' };
    const served = textSettings({
      policy: { init: undefined, model: null, tokenizer: '/t', trainer },
      rollout: { top_p: 1 },
    });
    expect(memoryOf(shapesOf(new Map()), { gpus: [], cpus: 2 })(served).bytes).toBe(300 * 2 ** 20);
  });
});

describe('the shape of a model', () => {
  it('is what the config.json of its folder says, and is not known if there is none', () => {
    const folder = newFolder();
    const config = {
      model_type: 'llama',
      architectures: ['LlamaForCausalLM'],
      vocab_size: 300,
      hidden_size: 24,
      intermediate_size: 40,
      num_hidden_layers: 2,
      num_attention_heads: 4,
      num_key_value_heads: 2,
      rms_norm_eps: 1e-5,
      rope_theta: 1e4,
      max_position_embeddings: 64,
      tie_word_embeddings: true,
    };
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
    const shapeOf = shapesOf(new Map());
    expect(shapeOf(folder)).toMatchObject({
      vocab_size: 300,
      head_dim: 6,
      num_key_value_heads: 2,
      tie_word_embeddings: true,
    });
    expect(shapeOf(join(folder, 'absent'))).toBeNull();
    expect(shapeOf({ hub: 'a/b', revision: 'main' })).toBeNull();
  });
  it('are known of a flow transformer, its IP-Adapter included', () => {
    const flows = fileURLToPath(new URL('../../compute/nets/flow/fixtures', import.meta.url));
    const shapeOf = shapesOf(new Map());
    const sizes = { kind: 'flow', width: 16, heads: 2, layers: 2, textWidth: 10, exact: expect.anything() as object };
    expect(shapeOf(join(flows, 'flux_ip_adapter'))).toEqual({
      ...sizes,
      mediaBeside: true,
      singleLayers: 1,
      patch: 1,
      imagePrompt: { tokens: 4, width: 11 },
      conditionDropout: null,
    });
    expect(shapeOf(join(flows, 'qwen_image'))).toEqual({
      ...sizes,
      singleLayers: 0,
      patch: 2,
      imagePrompt: null,
      conditionDropout: null,
    });
  });

  it('are known of Stable Diffusion 3, with its second attention and its table of positions', () => {
    const shapeOf = shapesOf(new Map());
    const flows = fileURLToPath(new URL('../../compute/nets/flow/fixtures', import.meta.url));
    // Files have the table of positions, too. The widest matrix of so small a model reads 256 sinusoids of the noise level.
    const { entries: stored } = readSafetensorsIndex(join(flows, 'sd3_medium', 'diffusion_pytorch_model.safetensors'));
    const sizes = [...stored.values()].map(({ shape }) => shape.reduce((size, n) => size * n, 1));
    expect(shapeOf(join(flows, 'sd3_medium'))).toMatchObject({
      layers: 3,
      singleLayers: 0,
      exact: { parameters: sizes.reduce((sum, size) => sum + size, 0), widest: 256 * 16 },
    });
    // A whole pipeline: the numbers of all files, and once more those of the largest text encoder, while it is opened.
    const folder = fileURLToPath(new URL('../../train/policies/flow/fixtures/sd3', import.meta.url));
    const numbersOf = (file: string): number => {
      const { entries } = readSafetensorsIndex(join(folder, file));
      return [...entries.values()].reduce((sum, { shape }) => sum + shape.reduce((size, n) => size * n, 1), 0);
    };
    const texts = ['text_encoder', 'text_encoder_2', 'text_encoder_3'].map((part) =>
      numbersOf(`${part}/model.safetensors`),
    );
    const wordsBytes = 4 * (texts.reduce((sum, one) => sum + one, 0) + Math.max(...texts));
    // Held in float16 they are there once, with the largest matrix in float32: T5's words or a CLIP's.
    const largest = ['text_encoder', 'text_encoder_2', 'text_encoder_3'].flatMap((part) =>
      [...readSafetensorsIndex(join(folder, `${part}/model.safetensors`)).entries.values()].map(({ shape }) =>
        shape.reduce((size, n) => size * n, 1),
      ),
    );
    const wordsHalfBytes = 2 * texts.reduce((sum, one) => sum + one, 0) + 4 * Math.max(...largest);
    const vae = numbersOf('vae/diffusion_pytorch_model.safetensors');
    const painter = numbersOf('transformer/diffusion_pytorch_model.safetensors');
    const found = shapeOf(folder) as GraphsShape;
    expect(found).toEqual({
      kind: 'graphs',
      bytes: 4 * (painter + vae) + wordsBytes,
      halfBytes: 2 * painter + 1.15 * 4 * 256 * 16 + 4 * vae + wordsHalfBytes,
      wordsBytes,
      wordsHalfBytes,
      // Its pictures have 8 channels at their largest.
      bytesPerPixel: 4 * 12 * 8,
    });
    const settings = (environment: object) => smallSettings({ environment });
    const bytesOf = (environment: object) =>
      memoryOf(shapesOf(new Map()), { gpus: [], cpus: 2 })(settings(environment)).bytes ?? 0;
    const [alone, read] = [
      bytesOf({ model: 'painter' }),
      bytesOf({ model: 'painter', parts: { text_encoder: folder } }),
    ];
    expect(read - alone).toBe(wordsBytes);
    const half = { engine: { dtype: 'float16' } };
    expect(bytesOf({ model: folder, ...half }) - bytesOf({ model: folder })).toBeCloseTo(
      found.halfBytes! - found.bytes,
      3,
    );
    const ofParts = { model: 'painter', parts: { text_encoder: folder } };
    expect(bytesOf(ofParts) - bytesOf({ ...ofParts, ...half })).toBe(wordsBytes - wordsHalfBytes);
  });

  it('are exact for FLUX.2-klein, whose sizes are public', () => {
    const folder = join(newFolder(), 'klein');
    mkdirSync(folder);
    const settings = {
      ...{ num_layers: 5, num_single_layers: 20, attention_head_dim: 128, num_attention_heads: 24, in_channels: 128 },
      ...{ joint_attention_dim: 7680, mlp_ratio: 3, guidance_embeds: false },
    };
    writeFileSync(join(folder, 'config.json'), JSON.stringify({ _class_name: 'Flux2Transformer2DModel', ...settings }));
    const shape = shapesOf(new Map())(folder) as FlowModelShape;
    expect(shape).toMatchObject({ width: 3072, heads: 24, layers: 5, singleLayers: 20, patch: 16, textWidth: 7680 });
    // What torch counts of the class. The widest matrix is that of queries, keys, values, gate and feed-forward layer.
    expect(flowModelParameters(shape)).toBe(3_875_544_576);
    expect(shape.exact?.widest).toBe(9 * 3072 ** 2);
    // LoRA on all linear layers except proj_out, as PEFT counts it.
    expect(flowAdapterParameters(shape, 16)).toBe(25_491_456);
  });

  it('are known of what decodes images, with its weights and its layers for each pixel', () => {
    const shapeOf = shapesOf(new Map());
    const folderOf = (config: object): string => {
      const folder = join(newFolder(), 'model');
      mkdirSync(folder);
      writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
      return folder;
    };
    const emu3 = shapeOf(folderOf({ model_type: 'Emu3VisionVQ' }));
    expect(emu3).toMatchObject({ kind: 'vision_tokenizer', patch: 8, decoding: { bytesPerPixel: 4 * 12 * 256 } });
    const flux = { block_out_channels: [128, 256, 512, 512], layers_per_block: 2, latent_channels: 16 };
    const vae = folderOf({ _class_name: 'AutoencoderKL', ...flux, use_quant_conv: false, use_post_quant_conv: false });
    // Its 83,819,683 parameters are those of diffusers.
    expect(shapeOf(vae)).toEqual({
      ...{ kind: 'autoencoder', reduction: 8 },
      decoding: { bytes: 4 * 83_819_683, bytesPerPixel: 4 * 12 * 128 },
    });
    expect(frozenBytes(vae, shapeOf, 1000)).toBe(4 * (83_819_683 + 12 * 128 * 1000));
  });

  it('is that of the halves that are read if it compares texts with images', () => {
    const shapeOf = shapesOf(new Map());
    // Weights by config.json alone, here that of clip-vit-base-patch32: what looks at pictures is there twice for a while.
    expect(shapeOf(modelOf({ model_type: 'clip' }))).toEqual({
      kind: 'graphs',
      bytes: 4 * (63_428_096 + 2 * 87_849_216),
      visionBytes: 4 * 2 * 87_849_216,
    });
    const alone = { kind: 'graphs', bytes: 4 * 2 * 87_849_216 };
    expect(shapeOf(modelOf({ model_type: 'clip_vision_model' }))).toEqual(alone);
    expect(shapeOf(modelOf({ model_type: 'siglip2' }))).toBeNull();
  });
});

describe('the parts of a run', () => {
  const gpus = [0, 1, 2].map((index) => ({
    index,
    uuid: `GPU-${index}`,
    name: 'a GPU',
    memoryBytes: 2 ** 34,
    usedBytes: 0,
  }));
  /** Qwen2.5-VL-7B, as Qwen-Image reads prompts with it. */
  const qwen = {
    model_type: 'qwen2_5_vl',
    text_config: {
      vocab_size: 152_064,
      hidden_size: 3584,
      intermediate_size: 18_944,
      num_hidden_layers: 28,
      num_attention_heads: 28,
      num_key_value_heads: 4,
      tie_word_embeddings: false,
    },
    vision_config: {},
  };

  it('are held against the GPUs that the run may use alone', () => {
    const mixed = [{ ...gpus[0], memoryBytes: 1 }, ...gpus.slice(1)];
    const settings = (devices: readonly number[] | null) =>
      smallSettings({
        policy: { engine: { provider: 'cuda' } },
        environment: { engine: { provider: 'cuda' } },
        launch: { devices },
      });
    const verdictOn = (devices: readonly number[] | null) =>
      memoryOf(shapesOf(new Map()), { gpus: mixed, cpus: 2 })(settings(devices)).verdict();
    expect(verdictOn(null)?.neverFits).toBe(true);
    expect(verdictOn([1])?.fits).toBe(true);
  });

  it('need memory where they are placed: CLIP with the reward, what reads prompts with the image model', () => {
    const clip = newFolder();
    const text = newFolder();
    const settings = (image: number, reward: number) =>
      smallSettings({
        policy: { engine: { provider: 'cuda' } },
        environment: { parts: { text_encoder: text }, engine: { provider: 'cuda' } },
        reward: { terms: [{ name: 'clip', weight: 1, model: clip }] },
        launch: { placement: { policy: 0, image, reward } },
      });
    const bytesWith = (image: number, reward: number): number => {
      const memory = memoryOf(shapesOf(new Map()), { gpus, cpus: 2 })(settings(image, reward));
      return memory.verdict()?.neededBytes ?? 0;
    };
    const [together, before] = [bytesWith(0, 0), bytesWith(1, 2)];
    expect(before).toBe(together);
    writeConfig(clip, { model_type: 'clip_vision_model' });
    writeConfig(text, qwen);
    const [clipBytes, textBytes] = [4 * 2 * 87_849_216, 4 * decoderParameters({ ...qwen.text_config, head_dim: null })];
    expect(bytesWith(0, 0)).toBe(together + clipBytes + textBytes);
    expect(bytesWith(1, 2)).toBe(Math.max(before, clipBytes, textBytes));
    expect(bytesWith(1, 0)).toBe(Math.max(together + clipBytes, textBytes));
    expect(bytesWith(1, 1)).toBe(Math.max(before, clipBytes + textBytes));
  });
});

/** A folder with a config.json and no weights. */
function modelOf(config: object): string {
  const folder = newFolder();
  writeConfig(folder, config);
  return folder;
}

function writeConfig(folder: string, config: object): void {
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
}
