/**
 * What `editrl plan` says that a policy of each recipe's real size takes, by the shapes of published models alone: as its config has it, with an adapter,
 * with an adapter over weights held in float16, and with vLLM sampling. Frozen models beside the policy (image models, CLIP, tokenizers of pictures) are
 * left out.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { loadConfig } from '../../src/config/load.js';
import { InternalError } from '../../src/core/errors.js';
import { memoryOf } from '../../src/launch/machine/memory.js';

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

interface Seed {
  readonly name: string;
  readonly config: string;
  readonly model: object;
  readonly sets?: readonly string[];
}

const SEEDS: readonly Seed[] = [
  { name: 'Emu3 8 B, EARL', config: 'configs/sft_s__rl_sc.jsonnet', model: emu3 },
  { name: 'Qwen2.5-VL-7B, edit_response', config: 'configs/edit_response.jsonnet', model: seeing(qwen7) },
  {
    name: 'Qwen2.5-7B, prompt_enhance',
    config: 'configs/prompt_enhance.jsonnet',
    model: { ...qwen7, model_type: 'qwen2' },
    sets: ['policy.model_context_size=256', 'rollout.max_response_tokens=128', 'optimizer.per_device_batch_size=8'],
  },
  { name: 'Qwen2.5-VL-3B, video_actions', config: 'configs/video_actions.jsonnet', model: seeing(qwen3) },
];

const LORA = 'policy.lora={"rank":16,"alpha":32}';
const SMALL = ['rollout.chunk_groups=1', 'optimizer.gradient_checkpointing=true', 'optimizer.per_device_batch_size=1'];
const VLLM = 'rollout.engine={"type":"vllm","base_url":"http://vllm/v1"}';

/** vLLM adapts decoders alone. */
const WORDS_ALONE = 'policy.train={"mm_vision":false,"mm_mlp":false,"mm_llm":true}';

const WAYS: Readonly<Record<string, readonly string[]>> = {
  'as its config has it': [],
  'LoRA, small batches': [LORA, ...SMALL],
  'the same, held in float16': [LORA, ...SMALL, 'policy.engine.dtype=float16'],
  'the same, vLLM samples': [LORA, ...SMALL, 'policy.engine.dtype=float16', VLLM],
};

/** Prints a table of GiB. */
export async function benchRealSizes(): Promise<void> {
  const work = mkdtempSync(join(tmpdir(), 'editrl-bench-real-sizes-'));
  try {
    console.log(`| GiB of a process | ${Object.keys(WAYS).join(' | ')} |`);
    console.log(
      `| --- |${Object.keys(WAYS)
        .map(() => ' ---: |')
        .join('')}`,
    );
    for (const seed of SEEDS) {
      const cells: string[] = [];
      for (const sets of Object.values(WAYS)) cells.push(await gibibytesOf(work, seed, sets));
      console.log(`| ${seed.name} | ${cells.join(' | ')} |`);
    }
  } finally {
    rmSync(work, { recursive: true });
  }
}

async function gibibytesOf(
  work: string,
  { name, config, model, sets = [] }: Seed,
  more: readonly string[],
): Promise<string> {
  const folder = join(work, name.replaceAll(/\W+/g, '_'));
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(model));
  const { settings } = await loadConfig({
    file: config,
    sets: [
      `policy.model=${JSON.stringify(folder)}`,
      'policy.engine.provider=cpu',
      ...sets,
      ...more,
      ...(more.includes(VLLM) && 'vision_config' in model ? [WORDS_ALONE] : []),
    ],
    env: { APP__DATA_DIR: join(work, 'data'), APP__REWARD_FUNCTION_API_BASE: 'http://judge/v1' },
  });
  const { bytes } = memoryOf(new Map(), { gpus: [], cpus: 2 })(settings);
  if (bytes === null) throw new InternalError(`no estimate for ${name}`);
  return (bytes / 2 ** 30).toFixed(0);
}
