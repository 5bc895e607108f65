/**
 * The keys of EARL's config files: every field of TrainingArgs in rl/nano_aha_moment.py of mair-lab/EARL, with its default there and its canonical key
 * here.
 */

type Meaning =
  /** The value moves unchanged to a canonical key. */
  | { readonly to: string }
  /** Combined with other keys, or converted. The result has this canonical key. */
  | { readonly joint: string }
  /** Why the key has no effect here. */
  | { readonly ignored: string };

/**
 * A key. `absent`: the value that EARL uses for a missing key. Without it, the key is required. (EARL also requires vllm_gpu_memory_utilization.)
 */
export type FlatKey = Meaning & { readonly absent?: unknown };

const paddedTo = 'EARL pads batches to this width; here a batch is as wide as its longest sequence';

/** Used if the run starts a vLLM. */
export const SERVED_MEMORY = 'rollout.engine.serve.gpu_memory_utilization';

export const earlKeys = {
  train_paths_file: { joint: 'data.train' },
  coefficients: { joint: 'data.train', absent: [] },
  val_paths_file: { joint: 'data.validation' },
  val_coefficients: { joint: 'data.validation', absent: [] },
  base_exp_dir: { to: 'base_exp_dir' },
  run_name: { joint: 'run_name', absent: null },
  random_seed: { to: 'seed', absent: 42 },
  model_path: { joint: 'policy.model' },
  model_revision: { joint: 'policy.model', absent: null },
  tokenizer_path: { joint: 'policy.tokenizer' },
  assistant_prefill: { joint: 'policy.assistant_prefill' },
  model_context_size: { to: 'policy.model_context_size' },
  emu3_use_logit_processor: { to: 'policy.emu3_use_logit_processor', absent: true },
  separate_language_and_vision_vocabs: { to: 'policy.separate_language_and_vision_vocabs', absent: true },
  learning_rate: { to: 'optimizer.learning_rate' },
  per_device_batch_size: { to: 'optimizer.per_device_batch_size' },
  num_iterations: { to: 'num_iterations' },
  kl_coeff: { to: 'algorithm.kl_coeff' },
  train_text_tokens_only: { joint: 'algorithm.train_tokens', absent: false },
  text_only_cycle_steps: { joint: 'algorithm.train_tokens', absent: 10 },
  text_only_steps: { joint: 'algorithm.train_tokens', absent: 10 },
  train_vision_tokens_only: { joint: 'algorithm.train_tokens', absent: false },
  vision_only_cycle_steps: { joint: 'algorithm.train_tokens', absent: 10 },
  vision_only_steps: { joint: 'algorithm.train_tokens', absent: 10 },
  temperature: { to: 'rollout.temperature' },
  top_p: { to: 'rollout.top_p' },
  top_k: { to: 'rollout.top_k' },
  episodes_per_iteration: { to: 'rollout.episodes_per_iteration' },
  generations_per_sample: { to: 'rollout.generations_per_sample' },
  max_response_tokens: { to: 'rollout.max_response_tokens' },
  max_prompt_len: { ignored: paddedTo, absent: null },
  max_completion_len: { ignored: paddedTo, absent: null },
  vllm_gpu_memory_utilization: { joint: SERVED_MEMORY, absent: null },
  reward_function_api_base: { joint: 'reward.endpoint', absent: null },
  reward_function_api_model_name: { to: 'reward.model', absent: 'Qwen/Qwen2.5-VL-72B-Instruct' },
  reward_compute_viescore: { joint: 'reward.also_compute', absent: true },
  reward_compute_ground_score: { joint: 'reward.also_compute', absent: true },
  reward_final_reward: { joint: 'reward.mode', absent: 'viescore' },
  log_episodes_every_n_iterations: { to: 'track.log_episodes_every_n_iterations', absent: 20 },
  save_checkpoints_every_n_iterations: { joint: 'checkpoint.save_every_n_iterations', absent: null },
  keep_checkpoints_every_n_iterations: { joint: 'checkpoint.keep_every_n_iterations', absent: null },
  push_to_hub_every_n_iterations: { joint: 'track.push_to_hub.every_n_iterations', absent: null },
  push_to_hub_repo_id: { joint: 'track.push_to_hub.repo_id', absent: null },
} as const satisfies Readonly<Record<string, FlatKey>>;

export type FlatName = keyof typeof earlKeys;

/** All keys, in the order of the table. */
export const flatKeys = Object.keys(earlKeys) as FlatName[];

export function isFlatKey(key: string): key is FlatName {
  return Object.hasOwn(earlKeys, key);
}

/** The canonical key of a flat key. Null for any other key and for one without effect. */
export function canonicalKeyOf(key: string): string | null {
  if (!isFlatKey(key)) return null;
  const entry: FlatKey = earlKeys[key];
  if ('ignored' in entry) return null;
  return 'to' in entry ? entry.to : entry.joint;
}

/** A file is in EARL's form if it has no task and at least one key that the canonical form lacks. */
export function isFlat(raw: Readonly<Record<string, unknown>>): boolean {
  return raw['task'] === undefined && flatKeys.some((key) => key in raw && canonicalKeyOf(key) !== key);
}
