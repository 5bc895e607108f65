/**
 * The flat dialect of edit_response: the arguments of TRL's GRPO (`GRPOConfig`, `ModelConfig` and `ScriptArguments` of examples/scripts/grpo_vlm.py,
 * https://github.com/huggingface/trl), which train a vision-language model to describe edits. Canonical keys in the file, in overlays and in `--set`
 * give what TRL's arguments do not cover, such as the model that draws (environment) and the judge (reward). A missing key gets the original
 * program's value if it has one of its own, else TRL's default.
 */
import { existsSync, readFileSync } from 'node:fs';
import { basename, isAbsolute, join } from 'node:path';
import { editResponse } from '../../recipes/edit_response/settings.js';
import { getPath, hasPath } from '../../schema/paths.js';
import { type Dialect, type DialectSource, type TableKey, type Translation } from './dialect.js';
import { listed, loss } from './edit_loss.js';
import { linesIn, trainerAbsent, trainerKeys, TrainerTranslator } from './trainer.js';

const keys = {
  ...trainerKeys,
  // As accelerate's launcher reads them from its own file (`--with deepspeed_zero2.yaml`).
  num_processes: { to: 'launch.processes' },
  num_machines: { to: null, joint: true },
  model_revision: { to: 'policy.model', joint: true },
  use_peft: { to: 'policy.lora', joint: true },
  lora_r: { to: 'policy.lora.rank', joint: true },
  lora_alpha: { to: 'policy.lora.alpha', joint: true },
  lora_target_modules: { to: 'policy.lora.targets', joint: true },
  use_rslora: { to: 'policy.lora.rslora', joint: true },
  dataset_name: { to: 'data.train', joint: true },
  max_prompt_length: { to: 'policy.model_context_size', joint: true },
  max_completion_length: { to: 'rollout.max_response_tokens', joint: true },
  per_device_train_batch_size: { to: 'optimizer.per_device_batch_size', joint: true },
  num_generations: { to: 'rollout.generations_per_sample', joint: true },
  temperature: { to: 'rollout.temperature', joint: true },
  top_p: { to: 'rollout.top_p', joint: true },
  top_k: { to: 'rollout.top_k', joint: true },
  beta: { to: 'algorithm.kl_coeff', joint: true },
  epsilon: { to: 'algorithm.clip_range' },
  scale_rewards: { to: 'algorithm.advantage.scale', joint: true },
  edit_model_path: { to: 'environment', joint: true, shared: true },
  alignment_weight: { to: 'reward.terms', joint: true },
  quality_weight: { to: 'reward.terms', joint: true },
  eval_steps: { to: 'validation.every_n_iterations' },
  // Only one value of each of these matches what this program does.
  loss_type: { to: 'algorithm.aggregation', joint: true },
  steps_per_generation: { to: null, joint: true },
  generation_batch_size: { to: 'rollout.episodes_per_iteration', joint: true, shared: true },
  mask_truncated_completions: { to: null, joint: true },
  sync_ref_model: { to: null, joint: true },
  min_p: { to: null, joint: true },
  repetition_penalty: { to: null, joint: true },
  importance_sampling_level: { to: 'algorithm.ratio', joint: true },
  epsilon_high: { to: 'algorithm.clip_range_high', joint: true },
  delta: { to: null, joint: true },
  reward_weights: { to: null, joint: true },
  load_in_8bit: { to: null, joint: true },
  load_in_4bit: { to: null, joint: true },
  use_dora: { to: null, joint: true },
  lora_modules_to_save: { to: null, joint: true },
  use_think_format_reward: { to: null, joint: true },
  openai_api_key: { to: null, joint: true },
  // Settings of the original trainer itself, or of how it is launched.
  lora_dropout: { to: null },
  lora_task_type: { to: null },
  dtype: { to: null },
  torch_dtype: { to: null },
  fp16: { to: null },
  attn_implementation: { to: null },
  trust_remote_code: { to: null },
  model_init_kwargs: { to: null },
  dataset_config: { to: null },
  dataset_train_split: { to: null },
  dataset_test_split: { to: null },
  dataset_streaming: { to: null },
  shuffle_dataset: { to: null },
  remove_unused_columns: { to: null },
  disable_dropout: { to: null },
  gradient_checkpointing_kwargs: { to: null },
  ddp_find_unused_parameters: { to: null },
  ds3_gather_for_generation: { to: null },
  use_vllm: { to: null },
  vllm_mode: { to: null },
  vllm_server_host: { to: null },
  vllm_server_port: { to: null },
  vllm_gpu_memory_utilization: { to: null },
  vllm_tensor_parallel_size: { to: null },
  logging_dir: { to: null },
  logging_strategy: { to: null },
  logging_first_step: { to: null },
  log_completions: { to: null },
  num_completions_to_print: { to: null },
  push_to_hub: { to: null },
  hub_model_id: { to: null },
  save_only_model: { to: null },
  // The original's dataset and judge.
  complexity: { to: null },
  image_type: { to: null },
  n_evals: { to: null },
  // Settings of accelerate's launcher.
  compute_environment: { to: null },
  debug: { to: null },
  deepspeed_config: { to: null },
  fsdp_config: { to: null },
  distributed_type: { to: null },
  downcast_bf16: { to: null },
  enable_cpu_affinity: { to: null },
  gpu_ids: { to: null },
  machine_rank: { to: null },
  main_process_ip: { to: null },
  main_process_port: { to: null },
  main_training_function: { to: null },
  mixed_precision: { to: null },
  rdzv_backend: { to: null },
  same_network: { to: null },
  tpu_env: { to: null },
  tpu_use_cluster: { to: null },
  tpu_use_sudo: { to: null },
  use_cpu: { to: null },
} as const satisfies Readonly<Record<string, TableKey>>;
type EditName = keyof typeof keys;

/** Keys that only this dialect has. */
const OWN: readonly EditName[] = [
  'num_generations',
  'max_prompt_length',
  'max_completion_length',
  'use_peft',
  'lora_r',
  'lora_alpha',
  'lora_target_modules',
  'edit_model_path',
];

/** The system message of diffusers' QwenImageEditPipeline (`prompt_template_encode`), under which the transformer was trained. */
export const QWEN_EDIT_SYSTEM =
  "Describe the key features of the input image (color, shape, size, texture, objects, background), then explain how the user's text instruction should alter or modify the image. Generate a new image that meets the user's requirements while maintaining consistency with the original input where appropriate.";

/** The original's own values, and TRL's. */
const absent = {
  ...trainerAbsent,
  learning_rate: 1e-5,
  gradient_accumulation_steps: 2,
  gradient_checkpointing: true,
  num_generations: 8,
  use_peft: true,
  lora_r: 16,
  lora_alpha: 32,
  max_completion_length: 256,
  temperature: 1,
  top_p: 1,
  top_k: 0,
  beta: 0,
  scale_rewards: 'group',
} as const;

interface Only {
  readonly values: readonly unknown[];
  readonly because: string;
}

/** Keys that would change what is learnt: the values that match what is done here, and what that is. */
const ONLY: Readonly<Partial<Record<EditName, Only>>> = {
  steps_per_generation: {
    values: [null],
    because: 'an iteration samples once; algorithm.minibatches has several steps',
  },
  mask_truncated_completions: { values: [false], because: 'answers that did not end are learnt from' },
  sync_ref_model: { values: [false], because: 'the reference is the frozen start' },
  min_p: { values: [null, 0], because: 'tokens are sampled by temperature, top_p and top_k' },
  repetition_penalty: { values: [1], because: 'tokens are sampled by temperature, top_p and top_k' },
  delta: { values: [null], because: 'a ratio below 1 of a good answer is not clipped' },
  reward_weights: { values: [null], because: 'reward.terms has the weights' },
  load_in_8bit: { values: [false], because: 'frozen weights stay as they are' },
  load_in_4bit: { values: [false], because: 'frozen weights stay as they are' },
  use_dora: { values: [false], because: 'adapters are LoRA' },
  num_machines: { values: [1], because: 'one machine trains a run' },
  use_think_format_reward: { values: [false], because: 'a reward module may score the form of an answer' },
  openai_api_key: { values: [null], because: 'a key goes into the environment (OPENAI_API_KEY), never into a file' },
  lora_modules_to_save: { values: [null], because: 'adapters alone are trained' },
};

/** By TRL's `scale_rewards`. */
const SCALES: ReadonlyMap<unknown, string> = new Map<unknown, string>([
  [true, 'std'],
  ['group', 'std'],
  ['batch', 'global_std'],
  [false, 'none'],
  ['none', 'none'],
]);

const sections = Object.keys(editResponse.schema.shape);

/** A file is in this dialect if it names no task and has a key that only this dialect has. */
function recognises(raw: Readonly<Record<string, unknown>>): boolean {
  return raw['task'] === undefined && OWN.some((key) => key in raw);
}

type File = TrainerTranslator<EditName>;

/** Translates such a file to the canonical form; `raw` is changed. */
function translate(raw: Record<string, unknown>, source: DialectSource): Translation {
  const warnings: string[] = [];
  if ('num_iterations' in raw) {
    warnings.push(
      "num_iterations is how many iterations the run has; TRL's, how often a batch is learnt from, is algorithm.inner_epochs",
    );
  }
  const file: File = new TrainerTranslator(raw, source, { keys, absent, task: editResponse.name, sections });
  if ('n_evals' in raw) warnings.push('each picture is graded once, whatever n_evals says');
  if ('complexity' in raw || 'image_type' in raw) {
    warnings.push(
      'complexity and image_type choose among the edits of a data set; here dataset_name, or data.train, names the list',
    );
  }
  editor(file);
  // Prompts of words use the same TRL arguments.
  if (
    !('environment' in raw) &&
    !('edit_model_path' in raw) &&
    !source.changes.some(({ path }) => path.split('.')[0] === 'environment')
  ) {
    const message = `missing: TRL's arguments are read as ${editResponse.name}, whose pictures an environment edits; allowed: an environment beside them, or task 'text_answers' with canonical keys (docs/text_answers.md)`;
    file.problems.push({ key: 'task', message });
  }
  for (const [name, only] of Object.entries(ONLY) as [EditName, Only][]) {
    if (!(name in raw) || only.values.includes(raw[name])) continue;
    const allowed = only.values.map((value) => JSON.stringify(value)).join(' or ');
    file.wrong(name, raw[name], `${allowed}, or left out: ${only.because}`);
  }
  file.model(raw['model_revision'] ?? null);
  file.put('optimizer.learning_rate', absent.learning_rate);
  file.put('optimizer.gradient_checkpointing', absent.gradient_checkpointing);
  file.put('algorithm.kl_coeff', file.given('beta'), 'beta');
  adapter(file);
  sampling(file);
  scale(file);
  loss(file, warnings);
  reward(file);
  system(file);
  datasets(file);
  batch(file);
  file.warmUp();
  return file.translation(warnings);
}

/** A Qwen-Image-Edit transformer was trained with this system message before its input; other families have none. */
function system(file: File): void {
  const isTold = (path: string, value: unknown): boolean => getPath(file.value, path) === value;
  if (!isTold('environment.type', 'render_server') && !isTold('environment.model_type', 'qwen')) return;
  if (!isTold('prompt.chat', false)) file.put('prompt.system', QWEN_EDIT_SYSTEM);
}

/** A pipeline's folder, containing `transformer` and `vae`; a name from the Hub refers to a folder below the data's folder. */
function editor(file: File): void {
  const { edit_model_path: named } = file.raw;
  if (named === undefined || hasPath(file.value, 'environment.model')) return;
  if (typeof named !== 'string' || named === '') {
    return file.wrong('edit_model_path', named, "a pipeline's folder, or its name on the Hub");
  }
  const folder = existsSync(named) ? named : join(file.source.dataDir, basename(named));
  file.put('environment.type', 'model');
  file.put('environment.model', join(folder, 'transformer'), 'edit_model_path');
  file.put('environment.model_type', 'qwen');
  file.put('environment.parts.vae', join(folder, 'vae'), 'edit_model_path');
}

/** The judge's two grades, with their weights as shares. */
function reward(file: File): void {
  if (hasPath(file.value, 'reward.mode')) return;
  const { alignment_weight: alignment, quality_weight: quality } = file.raw;
  if (alignment === undefined && quality === undefined) {
    return file.put('reward.terms', [{ name: 'align_quality', weight: 1 }]);
  }
  const isWeight = (value: unknown): value is number => typeof value === 'number' && value >= 0;
  if (!isWeight(alignment) || !isWeight(quality) || alignment + quality === 0) {
    const key = isWeight(alignment) ? 'quality_weight' : 'alignment_weight';
    return file.wrong(
      key,
      file.raw[key] ?? null,
      'a number of at least 0 beside the other weight, one of them above it',
    );
  }
  const sum = alignment + quality;
  const shares = { alignment_weight: alignment / sum, quality_weight: quality / sum };
  file.put('reward.terms', [{ name: 'align_quality', weight: 1, ...shares }], 'alignment_weight');
}

/** LoRA, unless the file says otherwise. */
function adapter(file: File): void {
  const use = file.given('use_peft');
  if (typeof use !== 'boolean') return file.wrong('use_peft', use, 'true or false');
  if (hasPath(file.value, 'policy.lora')) return;
  if (!use) return file.put('policy.lora', null, 'use_peft');
  file.put('policy.lora.rank', file.given('lora_r'), 'lora_r');
  file.put('policy.lora.alpha', file.given('lora_alpha'), 'lora_alpha');
  const { lora_target_modules: named, use_rslora: rslora } = file.raw;
  const targets = Array.isArray(named) && named.length === 1 && named[0] === 'all-linear' ? 'all-linear' : named;
  if (targets !== undefined && targets !== null) file.put('policy.lora.targets', targets, 'lora_target_modules');
  if (rslora !== undefined) file.put('policy.lora.rslora', rslora, 'use_rslora');
}

/** How answers are sampled; prompt and answer fill the context together. */
function sampling(file: File): void {
  const longest = file.given('max_completion_length');
  file.put('rollout.max_response_tokens', longest, 'max_completion_length');
  const { max_prompt_length: prompt = null } = file.raw;
  if (typeof prompt === 'number' && typeof longest === 'number') {
    file.put('policy.model_context_size', prompt + longest, 'max_prompt_length');
  } else if (prompt !== null) file.wrong('max_prompt_length', prompt, 'a whole number above 0, or null');
  file.put('rollout.temperature', file.given('temperature'), 'temperature');
  file.put('rollout.top_p', file.given('top_p'), 'top_p');
  const most = file.given('top_k');
  file.put('rollout.top_k', most === 0 ? -1 : most, 'top_k');
}

function scale(file: File): void {
  const found = file.given('scale_rewards');
  const scaled = SCALES.get(found);
  if (scaled === undefined) return file.wrong('scale_rewards', found, listed(SCALES));
  file.put('algorithm.advantage.scale', scaled, 'scale_rewards');
}

/** A list of edits: its path, or its name in the data's folder. */
function datasets(file: File): void {
  file.put('data.validation', []);
  const { dataset_name: name } = file.raw;
  if (name === undefined) return;
  if (typeof name !== 'string' || name === '') return file.wrong('dataset_name', name, 'the path of a list of edits');
  const path = isAbsolute(name) || existsSync(name) ? name : join(file.source.dataDir, name);
  file.put('data.train', [{ path }], 'dataset_name');
}

/** TRL's batch counts answers, `num_generations` per prompt; epochs are counted in prompts. */
function batch(file: File): void {
  const perDevice = file.whole('per_device_train_batch_size');
  const { generation_batch_size: sampled = null } = file.raw;
  // Answers that are sampled together are learnt from together, so their number implies the accumulation if that is not given.
  const isSaid = sampled === null || 'gradient_accumulation_steps' in file.raw;
  const steps = isSaid
    ? file.whole('gradient_accumulation_steps')
    : Number(sampled) / ((perDevice ?? 1) * file.processes);
  const answers = file.whole('num_generations');
  if (perDevice === null || steps === null || answers === null) return;
  const episodes = perDevice * steps * file.processes;
  if (sampled !== null && sampled !== episodes) {
    return file.wrong('generation_batch_size', sampled, `${episodes}, which an iteration learns from, or left out`);
  }
  file.put('rollout.generations_per_sample', answers, 'num_generations');
  file.put('optimizer.per_device_batch_size', perDevice, 'per_device_train_batch_size');
  if (episodes % answers !== 0) {
    const product = `${perDevice} x ${steps} gradient_accumulation_steps x ${file.processes} launch.processes`;
    return file.wrong(
      'per_device_train_batch_size',
      perDevice,
      `a number with which ${product} are whole groups of num_generations ${answers}`,
    );
  }
  file.put('rollout.episodes_per_iteration', episodes, 'gradient_accumulation_steps');
  file.iterations(episodes / answers, samplesIn, 'dataset_name');
}

/** Number of rows in a file of JSON lines; null for other files, which are read when they are opened. */
function samplesIn(path: string): number | null {
  if (!path.endsWith('.jsonl') || !existsSync(path)) return null;
  return linesIn(readFileSync(path, 'utf8'));
}

export const edit: Dialect = { recognises, translate };
