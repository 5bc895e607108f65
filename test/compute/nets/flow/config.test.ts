import { expect, it } from 'vitest';
import {
  flowConfigJson,
  readFlowConfig,
  velocityWidth,
  type FlowTransformerConfig,
} from '../../../../src/compute/nets/flow/config.js';
import {
  flowLinearLayers,
  flowParameters,
  initFlowTransformer,
  isIpAdapter,
} from '../../../../src/compute/nets/flow/transformer.js';

/** config.json of FLUX.1-Fill-dev and of Qwen-Image, as far as they set anything. */
const fill = {
  _class_name: 'FluxTransformer2DModel',
  _diffusers_version: '0.32.0.dev0',
  guidance_embeds: true,
  in_channels: 384,
  out_channels: 64,
  patch_size: 1,
};
const qwen = { _class_name: 'QwenImageTransformer2DModel', guidance_embeds: false, num_layers: 60 };
/** The transformer of FLUX.2-klein 4B, as diffusers' script for its conversion has it. */
const klein = {
  _class_name: 'Flux2Transformer2DModel',
  _diffusers_version: '0.37.0.dev0',
  attention_head_dim: 128,
  axes_dims_rope: [32, 32, 32, 32],
  eps: 1e-6,
  guidance_embeds: false,
  in_channels: 128,
  joint_attention_dim: 7680,
  mlp_ratio: 3.0,
  num_attention_heads: 24,
  num_layers: 5,
  num_single_layers: 20,
  out_channels: null,
  patch_size: 1,
  rope_theta: 2000,
  timestep_guidance_channels: 256,
};
/** config.json of Stable Diffusion 3 medium and of 3.5 medium. */
const sd3 = {
  _class_name: 'SD3Transformer2DModel',
  _diffusers_version: '0.29.0.dev0',
  attention_head_dim: 64,
  caption_projection_dim: 1536,
  in_channels: 16,
  joint_attention_dim: 4096,
  num_attention_heads: 24,
  num_layers: 24,
  out_channels: 16,
  patch_size: 2,
  pooled_projection_dim: 2048,
  pos_embed_max_size: 192,
  sample_size: 128,
};
const sd35 = {
  ...sd3,
  dual_attention_layers: Array.from({ length: 13 }, (_, layer) => layer),
  pos_embed_max_size: 384,
  qk_norm: 'rms_norm',
};
const adapter = { tokens: 4, image_embed_dim: 768, scale: 0.5 };

it('reads what diffusers writes, with the defaults of its classes', () => {
  expect(readFlowConfig(fill, 'config.json')).toEqual({
    architecture: 'flux',
    in_channels: 384,
    prediction: 'velocity',
    condition_dropout: null,
    out_channels: 64,
    num_layers: 19,
    num_single_layers: 38,
    attention_head_dim: 128,
    num_attention_heads: 24,
    joint_attention_dim: 4096,
    pooled_projection_dim: 768,
    guidance_embeds: true,
    axes_dims_rope: [16, 56, 56],
    ip_adapter: null,
  });
  const image = readFlowConfig(qwen, 'config.json');
  expect(image).toMatchObject({
    architecture: 'qwen_image',
    out_channels: 16,
    patch_size: 2,
    joint_attention_dim: 3584,
    zero_cond_t: false,
  });
  // Files of before it stay as they were.
  expect(JSON.parse(flowConfigJson(image))).not.toHaveProperty('zero_cond_t');
  expect(velocityWidth(image)).toBe(64);
  expect(readFlowConfig({ ...fill, out_channels: null }, '').out_channels).toBe(384);
});

it('reads FLUX.2, whose tokens have the channels of four latents', () => {
  expect(readFlowConfig(klein, 'config.json')).toEqual({
    architecture: 'flux2',
    in_channels: 128,
    out_channels: 128,
    num_layers: 5,
    num_single_layers: 20,
    attention_head_dim: 128,
    num_attention_heads: 24,
    joint_attention_dim: 7680,
    mlp_ratio: 3,
    axes_dims_rope: [32, 32, 32, 32],
    rope_theta: 2000,
    guidance_embeds: false,
    ip_adapter: null,
    prediction: 'velocity',
    condition_dropout: null,
  });
  // The defaults are those of FLUX.2-dev.
  expect(readFlowConfig({ _class_name: klein._class_name }, '')).toMatchObject({
    num_layers: 8,
    num_single_layers: 48,
    num_attention_heads: 48,
    joint_attention_dim: 15360,
    guidance_embeds: true,
  });
});

it('reads Stable Diffusion 3, whose files count channels of latents and not of tokens', () => {
  const config = readFlowConfig(sd3, 'config.json');
  expect(config).toEqual({
    architecture: 'sd3',
    in_channels: 64,
    out_channels: 16,
    patch_size: 2,
    num_layers: 24,
    attention_head_dim: 64,
    num_attention_heads: 24,
    joint_attention_dim: 4096,
    pooled_projection_dim: 2048,
    pos_embed_max_size: 192,
    sample_size: 128,
    qk_norm: null,
    dual_attention_layers: [],
    ip_adapter: null,
    prediction: 'velocity',
    condition_dropout: null,
  });
  expect(velocityWidth(config)).toBe(64);
  expect(readFlowConfig({ ...sd3, out_channels: null }, '')).toMatchObject({ in_channels: 64, out_channels: 16 });
  expect(JSON.parse(flowConfigJson(config))).toMatchObject({ in_channels: 16, caption_projection_dim: 1536 });
});

it.each<[string, FlowTransformerConfig]>([
  ['flux', readFlowConfig({ ...fill, ip_adapter: adapter }, '')],
  ['flux without a summary', readFlowConfig({ ...fill, pooled_projection_dim: 0, num_single_layers: 0 }, '')],
  ['flux2', readFlowConfig(klein, '')],
  ['qwen_image', readFlowConfig(qwen, '')],
  ['qwen_image whose sources have no noise', readFlowConfig({ ...qwen, zero_cond_t: true }, '')],
  ['sd3', readFlowConfig(sd3, '')],
  ['sd3 with a second attention', readFlowConfig(sd35, '')],
])('reads back what it writes: %s', (_name, config) => {
  expect(readFlowConfig(JSON.parse(flowConfigJson(config)), '')).toEqual(config);
});

it.each<[string, unknown, RegExp]>([
  [
    'nothing',
    null,
    /names no _class_name; allowed: FluxTransformer2DModel, Flux2Transformer2DModel, QwenImageTransformer2DModel, SD3Transformer2DModel/,
  ],
  [
    'another class',
    { _class_name: 'SanaTransformer2DModel' },
    /'SanaTransformer2DModel' is not supported; allowed: Flux/,
  ],
  ['a size that is none', { ...fill, num_layers: 0 }, /FluxTransformer2DModel: num_layers/],
  ['another patch', { ...fill, patch_size: 2 }, /FluxTransformer2DModel: patch_size/],
  ['another patch of FLUX.2', { ...klein, patch_size: 2 }, /Flux2Transformer2DModel: patch_size: only 1 is supported/],
  ['other sinusoids', { ...klein, timestep_guidance_channels: 128 }, /timestep_guidance_channels: only 256 is/],
  ['another epsilon', { ...klein, eps: 1e-5 }, /eps: only 0.000001 is supported/],
  ['three axes for FLUX.2', { ...klein, axes_dims_rope: [32, 48, 48] }, /axes_dims_rope/],
  ['a style image beside FLUX.2', { ...klein, ip_adapter: adapter }, /Flux2Transformer2DModel: ip_adapter/],
  ['a key of FLUX.2 that is not known', { ...klein, mlp_bias: true }, /Flux2Transformer2DModel: .*mlp_bias/],
  [
    'a condition of layers',
    { ...qwen, use_additional_t_cond: true },
    /QwenImageTransformer2DModel: use_additional_t_cond: only false is supported/,
  ],
  [
    'positions of layers',
    { ...qwen, use_layer3d_rope: true },
    /QwenImageTransformer2DModel: use_layer3d_rope: only false is supported/,
  ],
  ['a switch that is none', { ...qwen, zero_cond_t: 1 }, /QwenImageTransformer2DModel: zero_cond_t/],
  [
    'axes of another sum',
    { ...fill, axes_dims_rope: [16, 56, 58] },
    /sums to 130, which must be attention_head_dim 128/,
  ],
  ['a key that is not known', { ...sd3, quantization_config: {} }, /SD3Transformer2DModel: .*quantization_config/],
  ['a text of another width', { ...sd3, caption_projection_dim: 1024 }, /caption_projection_dim: .* the same width/],
  ['another norm of heads', { ...sd3, qk_norm: 'layer_norm' }, /SD3Transformer2DModel: qk_norm/],
  ['a second attention beyond the last', { ...sd35, num_layers: 12 }, /dual_attention_layers has 12.*num_layers is 12/],
  ['a style image beside it', { ...sd3, ip_adapter: adapter }, /SD3Transformer2DModel: ip_adapter/],
  ['an odd axis', { ...fill, axes_dims_rope: [15, 57, 56] }, /axes_dims_rope has 15/],
])('rejects %s', (_name, json, message) => {
  expect(() => readFlowConfig(json, 'there/config.json')).toThrow(message);
  try {
    readFlowConfig(json, 'there/config.json');
  } catch (error) {
    expect(error).toMatchObject({ code: 'checkpoint', where: 'there/config.json' });
  }
});

// What torch counts of these models, with the table of positions.
it.each<[string, unknown, number]>([
  ['FLUX', { ...fill, in_channels: 64 }, 11_901_408_320],
  ['FLUX.2-klein 4B', klein, 3_875_544_576],
  ['FLUX.2-dev', { _class_name: klein._class_name }, 32_223_281_152],
  ['Stable Diffusion 3 medium', sd3, 2_084_951_104],
  ['Stable Diffusion 3.5 medium', sd35, 2_469_663_936],
])('counts the parameters of %s', (_name, json, expected) => {
  const shapes = [...flowParameters(readFlowConfig(json, '')).values()];
  expect(shapes.reduce((sum, shape) => sum + shape.reduce((size, n) => size * n, 1), 0)).toBe(expected);
});

it('lists the linear layers and the parameters of the IP-Adapter', () => {
  const config = readFlowConfig(
    {
      ...fill,
      num_layers: 1,
      num_single_layers: 0,
      attention_head_dim: 8,
      axes_dims_rope: [4, 2, 2],
      ip_adapter: adapter,
    },
    '',
  );
  const linear = flowLinearLayers(config);
  expect(linear.every((name) => flowParameters(config).get(name)?.length === 2)).toBe(true);
  expect([...flowParameters(config).keys()].filter(isIpAdapter)).toEqual([
    'transformer_blocks.0.attn.processor.to_k_ip.0.weight',
    'transformer_blocks.0.attn.processor.to_k_ip.0.bias',
    'transformer_blocks.0.attn.processor.to_v_ip.0.weight',
    'transformer_blocks.0.attn.processor.to_v_ip.0.bias',
    'encoder_hid_proj.image_projection_layers.0.image_embeds.weight',
    'encoder_hid_proj.image_projection_layers.0.image_embeds.bias',
    'encoder_hid_proj.image_projection_layers.0.norm.weight',
    'encoder_hid_proj.image_projection_layers.0.norm.bias',
  ]);
});

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array): Buffer =>
  Buffer.from(buffer, byteOffset, byteLength);

it('draws each parameter from a stream of its own', () => {
  const tiny = {
    ...fill,
    num_layers: 1,
    num_single_layers: 0,
    attention_head_dim: 8,
    num_attention_heads: 2,
    axes_dims_rope: [4, 2, 2],
  };
  const [bare, adapted] = [{}, { ip_adapter: adapter }].map((more) =>
    initFlowTransformer(readFlowConfig({ ...tiny, ...more }, ''), 3),
  );
  for (const [name, { shape, data }] of bare) {
    const other = adapted.get(name)!;
    expect(other.shape).toEqual(shape);
    // Element by element, as toEqual compares, takes seconds.
    expect(bytesOf(other.data).equals(bytesOf(data)), name).toBe(true);
  }
  expect(bare.get('x_embedder.weight')!.data.some((x) => x !== 0)).toBe(true);
});
