/** Policies of published sizes with the models around them, by the shapes of these alone; and the ways in which a machine may hold them. */
import { EXPORTED_FLOW } from '../../src/models/exported.js';

const qwen = { rms_norm_eps: 1e-6, rope_theta: 1e6, hidden_act: 'silu', max_position_embeddings: 32768 };
const qwen7 = {
  ...qwen,
  vocab_size: 152064,
  hidden_size: 3584,
  intermediate_size: 18944,
  num_hidden_layers: 28,
  num_attention_heads: 28,
  num_key_value_heads: 4,
  tie_word_embeddings: false,
};
const qwen3 = {
  ...qwen,
  vocab_size: 151936,
  hidden_size: 2048,
  intermediate_size: 11008,
  num_hidden_layers: 36,
  num_attention_heads: 16,
  num_key_value_heads: 2,
  tie_word_embeddings: true,
};
const emu3 = {
  model_type: 'emu3_text_model',
  vocab_size: 184622,
  hidden_size: 4096,
  intermediate_size: 14336,
  num_hidden_layers: 32,
  num_attention_heads: 32,
  num_key_value_heads: 8,
  tie_word_embeddings: false,
  rms_norm_eps: 1e-5,
  rope_theta: 1e6,
  hidden_act: 'silu',
  max_position_embeddings: 9216,
};

/** Qwen2.5-VL of a decoder. */
const seeing = (decoder: typeof qwen7): object => ({
  ...decoder,
  model_type: 'qwen2_5_vl',
  rope_scaling: { type: 'mrope', mrope_section: [16, 24, 24] },
  image_token_id: 151655,
  video_token_id: 151656,
  vision_start_token_id: 151652,
  vision_end_token_id: 151653,
  vision_config: {
    depth: 32,
    hidden_act: 'silu',
    hidden_size: 1280,
    intermediate_size: 3420,
    num_heads: 16,
    in_chans: 3,
    out_hidden_size: decoder.hidden_size,
    patch_size: 14,
    spatial_merge_size: 2,
    spatial_patch_size: 14,
    window_size: 112,
    fullatt_block_indexes: [7, 15, 23, 31],
    tokens_per_second: 2,
    temporal_patch_size: 2,
  },
});

/** The models around the policies of published sizes. Text encoders alone are as `scripts/export_flow_parts` writes them: T5-XXL with one CLIP or two, in float32. */
const AROUND = {
  'emu3-vision': { config: { model_type: 'Emu3VisionVQ' } },
  'flux-fill': {
    config: {
      _class_name: 'FluxTransformer2DModel',
      in_channels: 384,
      out_channels: 64,
      patch_size: 1,
      num_layers: 19,
      num_single_layers: 38,
      attention_head_dim: 128,
      num_attention_heads: 24,
      joint_attention_dim: 4096,
      pooled_projection_dim: 768,
      guidance_embeds: true,
      axes_dims_rope: [16, 56, 56],
      ip_adapter: { tokens: 4, image_embed_dim: 1152, scale: 1 },
    },
  },
  'flux-vae': { config: autoencoder() },
  'flux-text': { config: { model_type: 'flow_text_encoder' }, bytes: 4 * 4_885_000_000 },
  // FLUX's whole folder as diffusers saves it, whose text encoders are read.
  'flux-whole': { config: {}, isPipeline: true },
  siglip: { config: { model_type: 'flow_image_encoder' }, bytes: 4 * 428_000_000 },
  'sd3-medium': {
    config: {
      _class_name: 'SD3Transformer2DModel',
      in_channels: 16,
      out_channels: 16,
      patch_size: 2,
      sample_size: 128,
      num_layers: 24,
      attention_head_dim: 64,
      num_attention_heads: 24,
      joint_attention_dim: 4096,
      caption_projection_dim: 1536,
      pooled_projection_dim: 2048,
      pos_embed_max_size: 192,
    },
  },
  'sd3-text': { config: { model_type: 'flow_text_encoder' }, bytes: 4 * 5_580_000_000 },
  // Its 20.4 billion numbers in bfloat16, as `scripts/export_edit_transformer` writes them.
  'qwen-image-edit': {
    config: { _class_name: 'QwenImageTransformer2DModel', model_type: EXPORTED_FLOW },
    bytes: 2 * 20_430_401_088,
  },
} as const satisfies Readonly<Record<string, AroundModel>>;
export type Around = keyof typeof AROUND;
export const around: Readonly<Record<Around, AroundModel>> = AROUND;

interface AroundModel {
  readonly config: object;
  /** Of its files; absent: none are counted. */
  readonly bytes?: number;
  /** Whether it is a pipeline of FLUX's transformer and autoencoder with its text encoders. */
  readonly isPipeline?: boolean;
}

function autoencoder(): object {
  const sizes = { block_out_channels: [128, 256, 512, 512], layers_per_block: 2, latent_channels: 16 };
  return { _class_name: 'AutoencoderKL', ...sizes, use_quant_conv: false, use_post_quant_conv: false };
}

export const WAYS = [
  'as its config has it',
  'LoRA, small batches',
  'the same, held in float16',
  'the same, vLLM samples',
  'a training server',
] as const;
export type Way = (typeof WAYS)[number];

type FolderOf = (model: Around) => string;

export interface Seed {
  readonly name: string;
  readonly config: string;
  /** The policy's config.json; absent where it is one of those around. */
  readonly model?: object;
  /** What it sets, given the folder of a model around it. */
  readonly sets?: (folderOf: FolderOf) => readonly string[];
  /** What each way sets, by the policy's folder and those of the models around it; null for what the recipe does not allow. */
  readonly ways: Readonly<Record<Way, ((folder: string, folderOf: FolderOf) => readonly string[]) | null>>;
  /** The provider for which the recipe refuses a way; absent: none. */
  readonly refused?: Readonly<Partial<Record<Way, string>>>;
  /** The test that runs a small twin of each way; null where there is none. */
  readonly twins: Readonly<Record<Way, string | null>>;
}

const NOTHING = (): readonly string[] => [];
const LORA = 'policy.lora={"rank":16,"alpha":32}';
const HALF = 'policy.engine.dtype=float16';
const FEWER_PICTURES = ['optimizer.gradient_checkpointing=true', 'optimizer.per_device_batch_size=1'];
const SMALL = ['rollout.chunk_groups=1', ...FEWER_PICTURES];
const VLLM = 'rollout.engine={"type":"vllm","base_url":"http://vllm/v1"}';
/** vLLM adapts decoders alone. */
const WORDS_ALONE = 'policy.train={"mm_vision":false,"mm_mlp":false,"mm_llm":true}';

/** The ways of a token policy; `sees`: it has eyes. `served`: what a training server asks for besides, null where there can be none. */
function tokenWays(sees: boolean, served: readonly string[] | null): Seed['ways'] {
  return {
    'as its config has it': NOTHING,
    'LoRA, small batches': () => [LORA, ...SMALL],
    'the same, held in float16': () => [LORA, ...SMALL, HALF],
    'the same, vLLM samples': () => [LORA, ...SMALL, HALF, VLLM, ...(sees ? [WORDS_ALONE] : [])],
    'a training server':
      served === null
        ? null
        : (folder) => [
            'policy.trainer={"type":"tinker","base_url":"http://server:8000","base_model":"base"}',
            'policy.model=null',
            'policy.lora=null',
            `policy.tokenizer=${folder}`,
            ...served,
          ],
  };
}

const HELD = 'test/policies/adapter.test.ts';

const EDIT_RESPONSE = {
  config: 'configs/edit_response.jsonnet',
  model: seeing(qwen7),
  ways: tokenWays(true, null),
  twins: {
    'as its config has it': 'test/e2e/recipes/edit_response.test.ts',
    'LoRA, small batches': HELD,
    'the same, held in float16': HELD,
    'the same, vLLM samples': 'test/e2e/vllm_pictures.test.ts',
    'a training server': null,
  },
} as const satisfies Omit<Seed, 'name'>;

export const SEEDS: readonly Seed[] = [
  {
    name: 'Emu3 8 B with its image tokenizer, EARL',
    config: 'configs/sft_s__rl_sc.jsonnet',
    model: emu3,
    sets: (folderOf) => [`environment.model=${folderOf('emu3-vision')}`],
    ways: tokenWays(false, [
      'policy.emu3_use_logit_processor=false',
      'policy.separate_language_and_vision_vocabs=false',
    ]),
    twins: {
      'as its config has it': 'test/e2e/recipes/emu3.test.ts',
      'LoRA, small batches': 'test/e2e/lora.test.ts',
      'the same, held in float16': HELD,
      'the same, vLLM samples': 'test/policies/vllm/blocks.test.ts',
      'a training server': 'test/e2e/tinker_images.test.ts',
    },
  },
  {
    ...EDIT_RESPONSE,
    name: 'Qwen2.5-VL-7B with an exported Qwen-Image-Edit, edit_response',
    sets: (folderOf) => [`environment.model=${folderOf('qwen-image-edit')}`, 'environment.parts.vae=null'],
  },
  {
    ...EDIT_RESPONSE,
    name: 'Qwen2.5-VL-7B with a render server, edit_response',
    sets: () => [
      'environment={"type":"render_server","base_url":"http://render:8095","served_model":"editor","max_pixels":1048576}',
    ],
    twins: { ...EDIT_RESPONSE.twins, 'as its config has it': 'test/e2e/edit_servers.test.ts' },
  },
  {
    name: 'Qwen2.5-7B with Stable Diffusion 3, prompt_enhance',
    config: 'configs/prompt_enhance.jsonnet',
    model: { ...qwen7, model_type: 'qwen2' },
    sets: (folderOf) => [
      'policy.model_context_size=256',
      'rollout.max_response_tokens=128',
      'optimizer.per_device_batch_size=8',
      `environment={"type":"model","model":"${folderOf('sd3-medium')}","model_type":"sd3","parts":{"vae":"${folderOf('flux-vae')}","text_encoder":"${folderOf('sd3-text')}"},"width":1024,"height":1024,"num_steps":28,"guidance_scale":4.5,"pictures_at_once":1}`,
    ],
    ways: tokenWays(false, []),
    twins: {
      'as its config has it': 'test/e2e/recipes/prompt_enhance.test.ts',
      'LoRA, small batches': 'test/e2e/recipes/prompt_enhance.test.ts',
      'the same, held in float16': HELD,
      'the same, vLLM samples': 'test/e2e/vllm.test.ts',
      'a training server': 'test/e2e/tinker.test.ts',
    },
  },
  {
    name: 'Qwen2.5-VL-3B, video_actions',
    config: 'configs/video_actions.jsonnet',
    model: seeing(qwen3),
    ways: tokenWays(true, [
      'policy.train.mm_vision=false',
      'data.frames.as=images',
      'rollout.temperature=1',
      'rollout.top_p=1',
    ]),
    twins: {
      'as its config has it': 'test/e2e/recipes/video_actions.test.ts',
      'LoRA, small batches': HELD,
      'the same, held in float16': HELD,
      'the same, vLLM samples': 'test/e2e/vllm_pictures.test.ts',
      'a training server': 'test/e2e/tinker_video.test.ts',
    },
  },
  {
    name: 'FLUX.1 Fill with an IP-Adapter, ip_adapter',
    config: 'configs/ip_adapter.jsonnet',
    sets: (folderOf) => [
      `policy.model=${folderOf('flux-fill')}`,
      `policy.parts={"vae":"${folderOf('flux-vae')}","text_encoder":"${folderOf('flux-text')}","image_encoder":"${folderOf('siglip')}"}`,
    ],
    ways: {
      'as its config has it': NOTHING,
      'LoRA, small batches': () => FEWER_PICTURES,
      'the same, held in float16': (_folder, folderOf) => [
        ...FEWER_PICTURES,
        HALF,
        `policy.parts.text_encoder=${folderOf('flux-whole')}`,
      ],
      'the same, vLLM samples': null,
      'a training server': null,
    },
    refused: { 'the same, held in float16': 'cuda' },
    twins: {
      'as its config has it': 'test/e2e/recipes/ip_adapter.test.ts',
      'LoRA, small batches': 'test/policies/flow/checkpointing.test.ts',
      'the same, held in float16': 'test/policies/flow/halves.test.ts',
      'the same, vLLM samples': null,
      'a training server': null,
    },
  },
];
