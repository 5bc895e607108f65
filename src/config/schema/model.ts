/** How a config names a model: a folder, a Hub repository, or another run. */
import { z } from 'zod';
import { count, nonNegative, operation, positive, positiveInteger, result, section } from '../../core/schema/mark.js';

/** A run's name: never a path, and usable as a folder name everywhere. */
export const runNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,95}$/;

export const hubReference = z.strictObject({
  hub: z.string().regex(/^[\w.-]+\/[\w.-]+$/, 'a Hub id such as "owner/name"'),
  revision: z.string().min(1).default('main'),
});
export const runReference = z.strictObject({
  run: z.string().regex(runNamePattern, 'a run name: letters, digits, "._-", at most 96 characters'),
  /** The config that makes the run when it is not finished; relative to the config that names it. */
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

/** A decoder's architecture in the words of Hugging Face's Llama and Qwen2 configs, for training from random weights. */
export const decoderInit = section(
  'A decoder from random weights: its architecture in the words of Hugging Face Llama/Qwen2 configs.',
  z.strictObject({
    hidden_size: result('Width of the residual stream.', positiveInteger),
    intermediate_size: result('Width of the SwiGLU feed-forward layer.', positiveInteger),
    num_hidden_layers: result('Number of layers.', positiveInteger),
    num_attention_heads: result('Query heads per layer.', positiveInteger),
    num_key_value_heads: result('Key/value heads per layer; divides num_attention_heads.', positiveInteger),
    head_dim: result(
      'Width of one head; null means hidden_size / num_attention_heads.',
      positiveInteger.nullable().default(null),
    ),
    rope_theta: result('Base of the rotary position angles.', positive.default(10_000)),
    rms_norm_eps: result('Epsilon of RMSNorm.', positive.default(1e-5)),
    attention_bias: result('Bias on the q, k and v projections (Qwen2 style).', z.boolean().default(false)),
    tie_word_embeddings: result('Whether the output head shares the embedding matrix.', z.boolean().default(false)),
    initializer_range: result(
      'Standard deviation of the initial weight matrices; null means 1/sqrt(fan-in), less for those that feed the residual stream.',
      positive.nullable().default(null),
    ),
    embedding_std: result(
      'Standard deviation of the initial embedding; null means initializer_range, or else 0.02.',
      positive.nullable().default(null),
    ),
  }),
);
export type DecoderInit = z.output<typeof decoderInit>;

/** A vision encoder from random weights, for a decoder from random weights. */
export const visionInit = section(
  'Eyes from random weights: the encoder of Qwen2.5-VL and its connector, in the words of its config.',
  z.strictObject({
    depth: result('Number of blocks.', positiveInteger),
    hidden_size: result('Width of the encoder; a multiple of four times num_heads.', positiveInteger),
    intermediate_size: result('Width of its feed-forward layers.', positiveInteger),
    num_heads: result('Heads of a block.', positiveInteger),
    patch_size: result('Side of a patch in pixels.', positiveInteger),
    temporal_patch_size: result('Frames that one patch reaches through.', positiveInteger.default(2)),
    spatial_merge_size: result('Side of the square of patches that becomes one token.', positiveInteger.default(2)),
    window_size: result(
      'Side in pixels of the windows within which patches see each other; null: they see the whole picture.',
      positiveInteger.nullable().default(null),
    ),
    fullatt_block_indexes: result(
      'Blocks in which they see the whole picture all the same.',
      z.array(count).default([]),
    ),
    tokens_per_second: result('How much a second counts in the positions of a clip.', positive.default(2)),
  }),
);
export type VisionInit = z.output<typeof visionInit>;

/** Which parts of a vision model are trained. */
export const trainedParts = section(
  'Which parts of the model train; with policy.lora, which parts have adapters.',
  z
    .strictObject({
      mm_vision: result('The vision encoder.', z.boolean().default(false)),
      mm_mlp: result(
        "The connector, which makes the decoder's tokens of what the encoder sees.",
        z.boolean().default(true),
      ),
      mm_llm: result('The decoder with its embeddings and head.', z.boolean().default(true)),
    })
    .prefault({}),
);

/** Low-rank adapters over frozen weights, in PEFT's words. */
export const lora = section(
  'Low-rank adapters: the model stays frozen, and beside its linear layers small matrices are trained, which a checkpoint holds alone; null trains all weights.',
  z.strictObject({
    rank: result('Rank of the adapters.', positiveInteger.default(16)),
    alpha: result('What they add is multiplied by alpha / rank.', positive.default(32)),
    rslora: result('Multiply by alpha / sqrt(rank) instead.', z.boolean().default(false)),
    targets: result(
      "Which layers: 'all-linear' (all linear layers but the output head), names such as q_proj or mlp.down_proj, or a regular expression of whole names.",
      z.union([z.string().min(1), z.array(z.string().min(1)).min(1)]).default('all-linear'),
      { allowed: "'all-linear', a list of names, or a regular expression" },
    ),
  }),
);

/** A VQ image tokenizer from random weights. */
export const imageTokenizerInit = section(
  'A VQ image tokenizer from random weights: its architecture.',
  z.strictObject({
    codebook_size: result('Number of codes in the codebook.', z.int().min(2)),
    patch: result('Side of the square patch that one code stands for, in pixels.', positiveInteger),
    hidden: result('Width of the encoder and decoder layers.', positiveInteger),
    code_dim: result('Width of one codebook vector.', positiveInteger),
    commitment_weight: result('Weight of the commitment loss.', nonNegative.default(0.25)),
  }),
);
export type ImageTokenizerInit = z.output<typeof imageTokenizerInit>;

/** An autoencoder of pictures from random weights, in the words of diffusers' `AutoencoderKL`. */
export const autoencoderInit = section(
  "An autoencoder of pictures from random weights: its architecture in the words of diffusers' AutoencoderKL.",
  z.strictObject({
    latent_channels: result('Channels of the latents.', positiveInteger),
    block_out_channels: result(
      'Channels of each level; the sides of a picture are halved between one and the next.',
      z.array(positiveInteger).min(1),
    ),
    layers_per_block: result('Residual blocks of a level of the encoder.', positiveInteger.default(1)),
    norm_num_groups: result('Groups of channels that are normalised together.', positiveInteger.default(8)),
    mid_block_add_attention: result(
      'Whether all places attend to each other at the lowest level.',
      z.boolean().default(false),
    ),
  }),
);
export type AutoencoderInit = z.output<typeof autoencoderInit>;

const clipTower = {
  hidden_size: result('Width.', positiveInteger),
  intermediate_size: result('Width of the feed-forward layers.', positiveInteger),
  num_hidden_layers: result('Layers.', positiveInteger),
  num_attention_heads: result('Heads of a layer; a divisor of hidden_size.', positiveInteger),
};

/** A CLIP from random weights, in the words of Hugging Face's `CLIPConfig`. */
export const clipInit = section(
  "A CLIP from random weights: its architecture in the words of Hugging Face's CLIPConfig.",
  z.strictObject({
    projection_dim: result('Width of the space in which texts and pictures are compared.', positiveInteger),
    logit_scale: result('What cosines are multiplied by at first; it is learnt, up to 100.', positive.default(14.3)),
    text_config: section(
      'What reads captions.',
      z.strictObject({
        ...clipTower,
        max_position_embeddings: result(
          'Tokens of a caption, start and end included; what is longer is cut.',
          z.int().min(3).default(77),
        ),
        merges: result(
          'Byte pairs that its tokenizer learns from the captions, at most; words that are whole end it sooner.',
          positiveInteger.default(4096),
        ),
      }),
    ),
    vision_config: section(
      'What looks at pictures.',
      z.strictObject({
        ...clipTower,
        image_size: result('Side that pictures are brought to, in pixels.', positiveInteger),
        patch_size: result(
          'Side of the square of pixels that becomes a token; a divisor of image_size.',
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
    'Execution provider of the onnx engine; auto takes the best one that this machine has.',
    z.enum(['auto', 'cpu', 'webgpu', 'cuda']).default('auto'),
  ),
  dtype: result(
    'Number format of the computation; weights and optimizer state stay float32.',
    z.enum(['float32']).default('float32'),
  ),
  threads: operation('CPU threads of one session; 0 means all cores.', count.default(0)),
};

export const engine = section('What computes the model.', z.strictObject(engineFields)).prefault({});

/** The engine of a decoder that trains. */
export const decoderEngine = section(
  'What computes the model.',
  z.strictObject({
    ...engineFields,
    dtype: result(
      "What an adapter's frozen weights are held in: 'float32', or 'float16' for matrices in half of the memory, each widened to float32 right before it is used. Everything is computed in float32, and adapters, optimizer state and vectors stay float32. A bfloat16 checkpoint loses nothing between 2^-14 and 65504, and smaller numbers change by at most 2^-25; a float32 one is rounded to 11 bits. Exports, vLLM and runs that start from this one put the adapter on the weights as stored. Nothing is packed then (rollout.packed_weights).",
      z.enum(['float32', 'float16']).default('float32'),
    ),
  }),
).prefault({});

const heldIn = z.enum(['float32', 'float16']).default('float32');
const HALF_HELD =
  "'float32', or 'float16' in half of the memory, each widened to float32 right before it is used. Everything is computed in float32. A bfloat16 checkpoint loses nothing between 2^-14 and 65504, and smaller numbers change by at most 2^-25";

/** The engine of an image model that trains. */
export const flowEngine = section(
  'What computes the model.',
  z.strictObject({
    ...engineFields,
    dtype: result(
      `What matrices are held in that stay frozen, with policy.train 'adapter' or 'lora': ${HALF_HELD}; a float32 one is rounded to 11 bits; one with a number beyond 65504 is refused. What trains, optimizer state and vectors stay float32. Runs that start from this one put what was trained on the weights as stored.`,
      heldIn,
    ),
  }),
).prefault({});

/** The engine of an image model that stays as it is. */
export const frozenEngine = section(
  'What computes the model.',
  z.strictObject({
    ...engineFields,
    dtype: result(
      `What matrices of the image model and of a pipeline's text encoders are held in: ${HALF_HELD}; a float32 one is rounded to 11 bits; one with a number beyond 65504 is refused. An exported model is held as its file has it.`,
      heldIn,
    ),
  }),
).prefault({});

/** `device`: which of the GPUs that its process sees, as a launcher says that places a run's parts. */
export type EngineSettings = z.output<
  typeof engine | typeof decoderEngine | typeof flowEngine | typeof frozenEngine
> & {
  readonly device?: number;
};
