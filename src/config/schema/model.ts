/** Models as configs name them: a folder, a Hub repository, or another run. */
import { z } from 'zod';
import { count, nonNegative, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

/** A run's name. It is never a path, and every file system accepts it. */
export const runNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;

export const hubReference = z.strictObject({
  hub: z.string().regex(/^[\w.-]+\/[\w.-]+$/, 'a Hub id such as "owner/name"'),
  revision: z.string().min(1).default('main'),
});
export const runReference = z.strictObject({
  run: z.string().regex(runNamePattern, 'a run name: letters, digits, "._-", at most 96 characters'),
  /** The config that makes the run, relative to the config that names it. */
  config: z.string().min(1),
});

/** A local path, `{hub, revision}`, or `{run, config}`. */
export const modelReference = z
  .union([z.string().min(1), hubReference, runReference])
  .meta({ allowed: 'a local path, {hub, revision} or {run, config}' });

const allowedModels = 'a local path, {hub, revision} or {run, config}';

/** A field that names a model, or null. */
export const optionalModel = (description: string, otherwise: string) =>
  result(description, modelReference.nullable().default(null), { allowed: `${allowedModels}, or null ${otherwise}` });

/** A field that names a model. */
export const neededModel = (description: string) => result(description, modelReference, { allowed: allowedModels });

export type HubReference = z.output<typeof hubReference>;
export type RunReference = z.output<typeof runReference>;
export type ModelReference = z.output<typeof modelReference>;

/** A randomly initialized decoder, with the names of Hugging Face's Llama and Qwen2 configs. */
export const decoderInit = section(
  'A randomly initialized decoder, with the names of Hugging Face Llama and Qwen2 configs.',
  z.strictObject({
    hidden_size: result('Width of the residual stream.', positiveInteger),
    intermediate_size: result('Width of the SwiGLU feed-forward layer.', positiveInteger),
    num_hidden_layers: result('Number of layers.', positiveInteger),
    num_attention_heads: result('Query heads per layer.', positiveInteger),
    num_key_value_heads: result('Key/value heads per layer. It divides num_attention_heads.', positiveInteger),
    head_dim: result(
      'Width of one head. null means hidden_size / num_attention_heads.',
      positiveInteger.nullable().default(null),
    ),
    rope_theta: result('Base of the rotary position angles.', positive.default(10_000)),
    rms_norm_eps: result('Epsilon of RMSNorm.', positive.default(1e-5)),
    attention_bias: result('Bias on the q, k and v projections (Qwen2 style).', z.boolean().default(false)),
    tie_word_embeddings: result('Whether the output head shares the embedding matrix.', z.boolean().default(false)),
    initializer_range: result(
      'Standard deviation of the initial weight matrices. null means 1/sqrt(fan-in), and less for projections into the residual stream.',
      positive.nullable().default(null),
    ),
    embedding_std: result(
      'Standard deviation of the initial embedding. null means initializer_range, else 0.02.',
      positive.nullable().default(null),
    ),
  }),
);
export type DecoderInit = z.output<typeof decoderInit>;

/** A randomly initialized vision encoder for a randomly initialized decoder. */
export const visionInit = section(
  'A randomly initialized vision encoder with its connector, with the names of the Qwen2.5-VL config.',
  z.strictObject({
    depth: result('Number of blocks.', positiveInteger),
    hidden_size: result('Width of the encoder. A multiple of four times num_heads.', positiveInteger),
    intermediate_size: result('Width of its feed-forward layers.', positiveInteger),
    num_heads: result('Heads of a block.', positiveInteger),
    patch_size: result('Side of a patch in pixels.', positiveInteger),
    temporal_patch_size: result('Frames in one patch.', positiveInteger.default(2)),
    spatial_merge_size: result('Side of the square of patches that becomes one token.', positiveInteger.default(2)),
    window_size: result(
      'Side in pixels of the attention windows. null means full attention.',
      positiveInteger.nullable().default(null),
    ),
    fullatt_block_indexes: result('Blocks with full attention all the same.', z.array(count).default([])),
    tokens_per_second: result('Positions per second of a clip.', positive.default(2)),
  }),
);
export type VisionInit = z.output<typeof visionInit>;

/** The parts of a vision-language model that train. */
export const trainedParts = section(
  'The parts of the model that train. With policy.lora, the parts with adapters.',
  z
    .strictObject({
      mm_vision: result('The vision encoder.', z.boolean().default(false)),
      mm_mlp: result('The connector between encoder and decoder.', z.boolean().default(true)),
      mm_llm: result('The decoder with its embeddings and head.', z.boolean().default(true)),
    })
    .prefault({}),
);

/** Low-rank adapters over frozen weights, with the names of PEFT. */
export const lora = section(
  'Low-rank adapters (LoRA): the base weights stay frozen, and a checkpoint contains only the adapters. null trains all weights.',
  z.strictObject({
    rank: result('Rank of the adapters.', positiveInteger.default(16)),
    alpha: result('The scale of the adapters is alpha / rank.', positive.default(32)),
    rslora: result('Use the scale alpha / sqrt(rank) instead.', z.boolean().default(false)),
    targets: result(
      "The layers with adapters: 'all-linear' (all linear layers but the output head), names such as q_proj or mlp.down_proj, or a regular expression that matches whole names.",
      z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]).default('all-linear'),
      { allowed: "'all-linear', a list of names, or a regular expression" },
    ),
  }),
);

/** A randomly initialized VQ image tokenizer. */
export const imageTokenizerInit = section(
  'A randomly initialized VQ image tokenizer.',
  z.strictObject({
    codebook_size: result('Number of codes in the codebook.', z.int().min(2)),
    patch: result('Side in pixels of the square patch of one code.', positiveInteger),
    hidden: result('Width of the encoder and decoder layers.', positiveInteger),
    code_dim: result('Width of one codebook vector.', positiveInteger),
    commitment_weight: result('Weight of the commitment loss.', nonNegative.default(0.25)),
  }),
);
export type ImageTokenizerInit = z.output<typeof imageTokenizerInit>;

/** A randomly initialized image autoencoder, with the names of diffusers' `AutoencoderKL`. */
export const autoencoderInit = section(
  "A randomly initialized image autoencoder, with the names of diffusers' AutoencoderKL.",
  z.strictObject({
    latent_channels: result('Channels of the latents.', positiveInteger),
    block_out_channels: result(
      'Channels of each level. The sides of an image are halved between levels.',
      z.array(positiveInteger).min(1),
    ),
    layers_per_block: result('Residual blocks per level of the encoder.', positiveInteger.default(1)),
    norm_num_groups: result('Groups of the group normalization.', positiveInteger.default(8)),
    mid_block_add_attention: result('Whether the lowest level has self-attention.', z.boolean().default(false)),
  }),
);
export type AutoencoderInit = z.output<typeof autoencoderInit>;

const clipTower = {
  hidden_size: result('Width.', positiveInteger),
  intermediate_size: result('Width of the feed-forward layers.', positiveInteger),
  num_hidden_layers: result('Layers.', positiveInteger),
  num_attention_heads: result('Heads per layer. A divisor of hidden_size.', positiveInteger),
};

/** A randomly initialized CLIP, with the names of Hugging Face's `CLIPConfig`. */
export const clipInit = section(
  "A randomly initialized CLIP, with the names of Hugging Face's CLIPConfig.",
  z.strictObject({
    projection_dim: result('Width of the joint embedding space.', positiveInteger),
    logit_scale: result('The initial scale of cosines. It is learned, up to 100.', positive.default(14.3)),
    text_config: section(
      'The text encoder.',
      z.strictObject({
        ...clipTower,
        max_position_embeddings: result(
          'Maximum tokens of a caption, including start and end. Longer captions are cut.',
          z.int().min(3).default(77),
        ),
        merges: result(
          'Maximum byte pairs that its tokenizer learns from the captions. It learns fewer once all words are single tokens.',
          positiveInteger.default(4096),
        ),
      }),
    ),
    vision_config: section(
      'The vision encoder.',
      z.strictObject({
        ...clipTower,
        image_size: result('Side in pixels that images are resized to.', positiveInteger),
        patch_size: result(
          'Side in pixels of the square patch of one token. A divisor of image_size.',
          positiveInteger,
        ),
      }),
    ),
  }),
);
export type ClipInit = z.output<typeof clipInit>;

const engineFields = {
  type: operation('The engine.', z.enum(['onnx']).default('onnx')),
  provider: operation(
    'Execution provider of the onnx engine. auto selects the best one of this machine.',
    z.enum(['auto', 'cpu', 'webgpu', 'cuda']).default('auto'),
  ),
  dtype: result(
    'Number format of the computation. Weights and optimizer state stay float32.',
    z.enum(['float32']).default('float32'),
  ),
  threads: operation('CPU threads of one session. 0 means all cores.', count.default(0)),
};

export const engine = section('The engine that computes the model.', z.strictObject(engineFields)).prefault({});

/** The engine of a decoder that trains. */
export const decoderEngine = section(
  'The engine that computes the model.',
  z.strictObject({
    ...engineFields,
    dtype: result(
      "Storage format of the base weights under an adapter: 'float32', or 'float16' for matrices, which halves their memory. Each matrix is converted to float32 right before its use. Everything is computed in float32, and adapters, optimizer state and vectors stay float32. A bfloat16 checkpoint is exact between 2^-14 and 65504, and smaller numbers change by at most 2^-25. A float32 checkpoint is rounded to 11 bits. Exports, vLLM and runs that start from this one use the weights as stored. Weights are not packed then (rollout.packed_weights).",
      z.enum(['float32', 'float16']).default('float32'),
    ),
  }),
).prefault({});

const stored = z.enum(['float32', 'float16']).default('float32');
const HALF_STORED =
  "'float32', or 'float16', which halves their memory. Each matrix is converted to float32 right before its use. Everything is computed in float32. A bfloat16 checkpoint is exact between 2^-14 and 65504, and smaller numbers change by at most 2^-25. A float32 checkpoint is rounded to 11 bits. A number beyond 65504 is rejected.";

/** The engine of an image model that trains. */
export const flowEngine = section(
  'The engine that computes the model.',
  z.strictObject({
    ...engineFields,
    dtype: result(
      `Storage format of frozen matrices, with policy.train 'adapter' or 'lora': ${HALF_STORED} Trained weights, optimizer state and vectors stay float32. Runs that start from this one use the weights as stored.`,
      stored,
    ),
  }),
).prefault({});

/** The engine of a frozen image model. */
export const frozenEngine = section(
  'The engine that computes the model.',
  z.strictObject({
    ...engineFields,
    dtype: result(
      `Storage format of the matrices of the image model and of a pipeline's text encoders: ${HALF_STORED} An exported model keeps the format of its file.`,
      stored,
    ),
  }),
).prefault({});

/** The engine of a frozen language model. */
export const readingEngine = section(
  'The engine that computes the model.',
  z.strictObject({
    ...engineFields,
    dtype: result(`Storage format of the model's matrices: ${HALF_STORED}`, stored),
  }),
).prefault({});

/** `device` is the index of a GPU among those visible to the process. A launcher that places the parts of a run sets it. */
export type EngineSettings = z.output<
  typeof engine | typeof decoderEngine | typeof flowEngine | typeof frozenEngine | typeof readingEngine
> & {
  readonly device?: number;
};
