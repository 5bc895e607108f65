/**
 * The keys of the flat dialect of IP-Adapter training: all arguments of train/train.py of https://github.com/yuriYanZeXuan/Calligrapher, with their
 * names here.
 */
import type { TableKey } from './dialect.js';

export const flowKeys = {
  model_type: { to: 'policy.model_type' },
  pretrained_model_name_or_path: { to: 'policy.model', joint: true },
  revision: { to: 'policy.model', joint: true, shared: true },
  siglip_path: { to: 'policy.parts.image_encoder', joint: true },
  output_dir: { to: 'base_exp_dir', joint: true },
  train_data_json: { to: 'data.train', joint: true },
  resolution: { to: 'data.resolution', joint: true },
  learning_rate: { to: 'optimizer.learning_rate' },
  max_grad_norm: { to: 'optimizer.max_grad_norm' },
  lr_scheduler: { to: 'optimizer.schedule', joint: true },
  lr_warmup_steps: { to: 'algorithm.warmup_steps', joint: true },
  train_batch_size: { to: 'optimizer.per_device_batch_size' },
  gradient_accumulation_steps: { to: 'algorithm.minibatches', joint: true, shared: true },
  num_train_epochs: { to: 'num_iterations', joint: true, shared: true },
  max_train_steps: { to: 'num_iterations', joint: true, shared: true },
  checkpointing_steps: { to: 'checkpoint.save_every_n_iterations', joint: true },
  use_ema: { to: 'optimizer.ema_decay', joint: true },
  ema_decay: { to: 'optimizer.ema_decay', joint: true },
  use_rl: { to: 'algorithm.type', joint: true },
  rl_warmup_steps: { to: 'num_iterations', joint: true, shared: true },
  rl_per_prompt_stat_tracking: { to: 'algorithm.type', joint: true },
  rl_num_inner_epochs: { to: 'algorithm.inner_epochs' },
  rl_num_images_per_prompt: { to: 'rollout.generations_per_sample' },
  rl_num_batches_per_epoch: { to: 'rollout.episodes_per_iteration', joint: true },
  rl_num_inference_steps: { to: 'rollout.num_steps' },
  rl_guidance_scale: { to: 'rollout.guidance_scale' },
  rl_timestep_fraction: { to: 'rollout.timestep_fraction' },
  rl_adv_clip_max: { to: 'algorithm.advantage.clip' },
  rl_grpo_clip_range: { to: 'algorithm.clip_range' },
  rl_kl_beta: { to: 'algorithm.kl_coeff' },
  // Used for the terms of reward servers.
  ocr_weight: { to: 'reward.terms', joint: true, shared: true },
  vlm_weight: { to: 'reward.terms', joint: true, shared: true },
  reward_server_url: { to: 'reward.terms', joint: true },
  // Only some values of these match what this program does.
  rl_method: { to: null, joint: true },
  rl_reward_image_from: { to: null, joint: true },
  ema_update_interval: { to: null, joint: true },
  no_rl_reward_model: { to: null, joint: true },
  initial_ip_adapter_path: { to: null, joint: true },
  max_train_samples: { to: null, joint: true },
  // Settings of the original trainer itself, or of how it is launched.
  weighting_scheme: { to: null },
  variant: { to: null },
  cache_dir: { to: null },
  dataset_name: { to: null },
  dataset_config_name: { to: null },
  image_column: { to: null },
  caption_column: { to: null },
  mixed_precision: { to: null },
  dataloader_num_workers: { to: null },
  max_sequence_length: { to: null },
  vlm_model_path: { to: null },
  gradient_checkpointing: { to: 'optimizer.gradient_checkpointing' },
  offload_text_encoder_two: { to: null },
  use_8bit_adam: { to: null },
  enable_memory_profiler: { to: null },
  report_to: { to: null },
  logging_dir: { to: null },
  nft_beta: { to: null },
  nft_adv_mode: { to: null },
  nft_decay_type: { to: null },
} as const satisfies Readonly<Record<string, TableKey>>;
export type FlowName = keyof typeof flowKeys;

/** Keys that only this dialect has. */
export const FLOW_OWN = Object.keys(flowKeys).filter(
  (key) =>
    key === 'model_type' ||
    key === 'siglip_path' ||
    key === 'train_data_json' ||
    key === 'reward_server_url' ||
    key === 'initial_ip_adapter_path' ||
    key.startsWith('rl_') ||
    key === 'ocr_weight' ||
    key === 'vlm_weight',
);

/** The program's defaults for missing keys. */
export const flowAbsent = {
  resolution: 1024,
  train_batch_size: 1,
  gradient_accumulation_steps: 1,
  checkpointing_steps: 500,
  lr_scheduler: 'constant',
  lr_warmup_steps: 500,
  ema_decay: 0.9999,
  num_train_epochs: 1,
  rl_num_images_per_prompt: 1,
  rl_num_batches_per_epoch: 1,
  rl_num_inference_steps: 50,
  rl_timestep_fraction: 1,
  rl_num_inner_epochs: 1,
  ocr_weight: 0.6,
  vlm_weight: 0.4,
} as const satisfies Readonly<Partial<Record<FlowName, unknown>>>;

interface Only {
  readonly values: readonly unknown[];
  readonly because: string;
}

/** Keys that would change what is learnt: the values that match what is done here, and what that is. */
export const FLOW_ONLY: Readonly<Partial<Record<FlowName, Only>>> = {
  rl_method: {
    values: ['grpo'],
    because: "DiffusionNFT is algorithm.surrogate 'nft' here, beside which canonical keys stand",
  },
  rl_reward_image_from: {
    values: ['t0_latent', 'pred_x0'],
    because: 'the picture that is scored is that of the last step, which both are where that step has no noise',
  },
  ema_update_interval: { values: [1], because: 'averages follow every optimizer step' },
  no_rl_reward_model: { values: [false], because: 'rewards that are drawn by chance teach nothing' },
  initial_ip_adapter_path: {
    values: [null, ''],
    because:
      'pickles are never read, so that the warm-up begins a new adapter (policy.ip_adapter); a checkpoint of this program is a policy.model',
  },
  max_train_samples: { values: [null], because: 'all lines of self_bench.txt are samples; shorten the list' },
};
