/** A file in the flat form of TRL's GRPO, for a model whose words edit pictures. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../src/config/load.js';
import { QWEN_EDIT_SYSTEM } from '../../src/config/dialects/edit.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('flat-edit');

/** What the original trains with, on its eight devices. */
const whole = {
  model_name_or_path: 'Qwen/Qwen2.5-VL-7B-Instruct',
  output_dir: 'outputs/grpo_clean',
  learning_rate: 1e-5,
  per_device_train_batch_size: 1,
  gradient_accumulation_steps: 2,
  num_generations: 8,
  num_train_epochs: 3,
  max_prompt_length: 2048,
  max_completion_length: 512,
  use_peft: true,
  lora_r: 64,
  lora_alpha: 128,
  lora_target_modules: ['q_proj', 'v_proj'],
  temperature: 0.9,
  beta: 0.04,
  bf16: true,
  logging_steps: 1,
  save_steps: 20,
  save_total_limit: 2,
  dataset_name: 'edits.jsonl',
  launch: { processes: 8 },
  environment: { type: 'model', model: '/models/editor' },
  reward: { endpoint: 'http://judge/v1' },
};

/** A folder with a list of 100 edits, beside the config. */
function load(content: object, sets: readonly string[] = []): Promise<LoadedConfig> {
  const folder = newFolder();
  writeFileSync(join(folder, 'edits.jsonl'), '{}\n'.repeat(100));
  const file = join(folder, 'edits_by_words.jsonnet');
  writeFileSync(file, JSON.stringify(content));
  return loadConfig({ file, sets, env: { APP__DATA_DIR: folder } });
}

const refusal = (loading: Promise<unknown>): Promise<string> =>
  loading.then(
    () => 'loaded',
    (error: Error) => error.message,
  );

/** A ratio is 1 within an iteration's only step. */
const twoSteps = { algorithm: { inner_epochs: 2 } };

describe("a flat file of TRL's GRPO", () => {
  it('means what it means to its own program', async () => {
    const { settings, warnings } = await load(whole);
    expect(settings).toMatchObject({
      task: 'edit_response',
      run_name: 'grpo_clean',
      base_exp_dir: 'outputs',
      // Three times 100 samples, two at a time: 16 answers, 8 to a prompt.
      num_iterations: 150,
      algorithm: { type: 'grpo', kl_coeff: 0.04, clip_range: null, advantage: { scope: 'group', scale: 'std' } },
      optimizer: { learning_rate: 1e-5, per_device_batch_size: 1, gradient_checkpointing: true, schedule: 'linear' },
      rollout: {
        episodes_per_iteration: 16,
        generations_per_sample: 8,
        max_response_tokens: 512,
        temperature: 0.9,
        top_p: 1,
        top_k: -1,
      },
      policy: {
        model: { hub: 'Qwen/Qwen2.5-VL-7B-Instruct', revision: 'main' },
        model_context_size: 2560,
        lora: { rank: 64, alpha: 128, targets: ['q_proj', 'v_proj'] },
      },
      data: { train: [{ path: expect.stringMatching(/edits\.jsonl$/) as string }], validation: [] },
      environment: { type: 'model', model: '/models/editor' },
      reward: { terms: [{ name: 'align_quality', weight: 1 }] },
      checkpoint: { save_every_n_iterations: 20, keep_last: 2 },
    });
    for (const name of ['bf16', 'logging_steps']) expect(warnings.join('\n')).toContain(`${name} has no meaning here`);
    expect(warnings.join('\n')).not.toContain('num_generations');
  });

  it.each<[string, object, string[], string | null]>([
    ['a transformer of Qwen-Image-Edit', { ...whole.environment, model_type: 'qwen' }, [], QWEN_EDIT_SYSTEM],
    ['one that --set says is of it', whole.environment, ['environment.model_type=qwen'], QWEN_EDIT_SYSTEM],
    ['a render server', { type: 'render_server', base_url: 'http://r', served_model: 'm' }, [], QWEN_EDIT_SYSTEM],
    ['one that was given another', { ...whole.environment, model_type: 'qwen' }, ['prompt.system=Mine.'], 'Mine.'],
    ['one without chat', { ...whole.environment, model_type: 'qwen' }, ['prompt.chat=false'], null],
    ['a model of another family', whole.environment, [], null],
  ])('asks %s under the system message that it was trained under', async (_, environment, sets, expected) => {
    const { settings } = await load({ ...whole, environment }, sets);
    expect(settings).toMatchObject({ prompt: { system: expected } });
  });

  it("has the original's values where it says nothing, and else TRL's", async () => {
    const { settings } = await load({
      model_name_or_path: 'a/b',
      num_generations: 2,
      max_steps: 7,
      environment: whole.environment,
      reward: whole.reward,
      data: { train: [{ path: 'list.jsonl' }] },
    });
    expect(settings).toMatchObject({
      run_name: 'edits_by_words',
      num_iterations: 7,
      optimizer: { learning_rate: 1e-5, per_device_batch_size: 1 },
      rollout: { episodes_per_iteration: 2, generations_per_sample: 2, max_response_tokens: 256, temperature: 1 },
      policy: { lora: { rank: 16, alpha: 32, targets: 'all-linear' }, model_context_size: 4096 },
      algorithm: { kl_coeff: 0 },
    });
  });

  it.each([
    [{ use_peft: false }, { policy: { lora: null } }],
    [
      { lora_target_modules: ['all-linear'], use_rslora: true },
      { policy: { lora: { targets: 'all-linear', rslora: true } } },
    ],
    [{ scale_rewards: false }, { algorithm: { advantage: { scale: 'none' } } }],
    [{ scale_rewards: 'batch' }, { algorithm: { advantage: { scale: 'global_std' } } }],
    [{ top_k: 50, top_p: 0.9 }, { rollout: { top_k: 50, top_p: 0.9 } }],
    [{ epsilon: 0.2 }, { algorithm: { clip_range: 0.2 } }],
    [{ loss_type: 'grpo' }, { algorithm: { aggregation: 'answer' } }],
    [{ loss_type: 'dr_grpo' }, { algorithm: { aggregation: 'dr_grpo' } }],
    [{ ...twoSteps, epsilon: 0.2, epsilon_high: 0.28 }, { algorithm: { clip_range: 0.2, clip_range_high: 0.28 } }],
    [{ ...twoSteps, importance_sampling_level: 'sequence' }, { algorithm: { ratio: 'answer' } }],
    [
      { ...twoSteps, loss_type: 'cispo', epsilon_high: 5 },
      { algorithm: { surrogate: 'cispo', clip_range_high: 4, aggregation: 'dapo' } },
    ],
    [{ ...twoSteps, loss_type: 'dapo' }, { algorithm: { aggregation: 'dapo' } }],
    [{ max_prompt_length: null }, { policy: { model_context_size: 4096 } }],
    [{ model_revision: 'v2' }, { policy: { model: { revision: 'v2' } } }],
    [{ loss_type: 'dapo', min_p: null, load_in_4bit: false }, { rollout: { generations_per_sample: 8 } }],
    [{ warmup_ratio: 0.1, lr_scheduler_type: 'cosine' }, { algorithm: { warmup_steps: 15 } }],
  ])('takes %j', async (given, expected) => {
    expect((await load({ ...whole, ...given })).settings).toMatchObject(expected);
  });

  it('says that options about ratios have no effect with one step', async () => {
    const { settings, warnings } = await load({ ...whole, loss_type: 'cispo', epsilon_high: 5 });
    expect(settings).toMatchObject({ algorithm: { surrogate: 'ppo', clip_range_high: null, aggregation: 'dapo' } });
    expect(warnings.join()).toContain('loss_type, epsilon_high: without effect in an iteration of one optimizer step');
  });

  it.each([
    [{ loss_type: 'sapo' }, 'loss_type: found "sapo"; allowed: "grpo", "bnpo", "dr_grpo", "dapo", "cispo"'],
    [{ importance_sampling_level: 'word' }, 'importance_sampling_level: found "word"; allowed: "token", "sequence"'],
    [{ ...twoSteps, loss_type: 'cispo', epsilon_high: 0.3 }, 'epsilon_high: found 0.3; allowed: with loss_type'],
    [{ ...twoSteps, loss_type: 'cispo' }, 'epsilon_high: found null; allowed: with loss_type'],
    [{ load_in_4bit: true }, 'load_in_4bit: found true; allowed: false, or left out: frozen weights stay as they are'],
    [
      { reward_weights: [1, 2] },
      'reward_weights: found [1,2]; allowed: null, or left out: reward.terms has the weights',
    ],
    [{ num_generations: 3 }, 'per_device_train_batch_size: found 1; allowed: a number with which 1 x 2'],
    [{ num_generations: 0 }, 'num_generations: found 0; allowed: a whole number above 0'],
    [{ scale_rewards: 'mean' }, 'scale_rewards: found "mean"; allowed: true, "group", "batch", false, "none"'],
    [{ use_peft: 'yes' }, 'use_peft: found "yes"; allowed: true or false'],
    [{ num_generation: 8 }, 'num_generation: unknown key; did you mean num_generations?'],
    [{ dataset_name: 'owner/edits' }, 'num_train_epochs: cannot be counted in iterations'],
    [{ algorithm: { kl_coeff: 0.2 } }, 'beta: also given as algorithm.kl_coeff; keep one of the two'],
    [{ temperature: -1 }, 'temperature: found -1'],
  ])('refuses %j by name', async (given, message) => {
    expect(await refusal(load({ ...whole, ...given }))).toContain(message);
  });

  it('keeps an absolute dataset_name as it is, whether the file is there or not', async () => {
    const { settings } = await load({ ...whole, num_iterations: 5, dataset_name: '/nowhere/edits.jsonl' });
    expect(settings).toMatchObject({ data: { train: [{ path: '/nowhere/edits.jsonl' }] } });
  });

  it('may be changed in either form, and says whose num_iterations it has', async () => {
    const { settings, warnings } = await load({ ...whole, num_iterations: 5 }, ['beta=0.2', 'rollout.top_p=0.5']);
    expect(settings).toMatchObject({
      num_iterations: 5,
      algorithm: { kl_coeff: 0.2, inner_epochs: 1 },
      rollout: { top_p: 0.5 },
    });
    expect(warnings.join('\n')).toContain('num_iterations is how many iterations the run has');
  });

  it('without an environment says what it is read as, since prompts of words are trained on by the same arguments', async () => {
    const { environment, ...bare } = whole;
    await expect(load(bare)).rejects.toThrow("TRL's arguments are read as edit_response");
    const changed = await load(bare, [`environment=${JSON.stringify(environment)}`]);
    expect(changed.settings).toMatchObject({ task: 'edit_response', environment });
  });

  /** The arguments that run_8gpu.sh of trl_qwen_ie passes, as TRL's parser reads them from a file. */
  const script = `
model_name_or_path: Qwen/Qwen2.5-VL-7B-Instruct
edit_model_path: Qwen/Qwen-Image-Edit-2509
output_dir: outputs/drgrpo_qwenie
learning_rate: 1e-5
num_train_epochs: 3
max_steps: 1000
per_device_train_batch_size: 2
max_prompt_length: 8192
max_completion_length: 1024
complexity: "8"
image_type: real
use_vllm: true
vllm_mode: colocate
use_peft: true
alignment_weight: 0.6
quality_weight: 0.4
n_evals: 3
logging_steps: 10
save_strategy: steps
save_steps: 50
save_total_limit: 10
save_only_model: True
dtype: bfloat16
num_generations: 16
generation_batch_size: 16
report_to: wandb
log_completions: true
loss_type: dr_grpo
lora_target_modules:
  - q_proj
  - v_proj
  - k_proj
  - o_proj
lora_r: 128
lora_alpha: 256
gradient_checkpointing: false
`;
  /** What accelerate's launcher reads there. */
  const launcher = `
compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
  offload_optimizer_device: none
  zero_stage: 2
distributed_type: DEEPSPEED
downcast_bf16: 'no'
enable_cpu_affinity: false
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
`;

  function loadYaml(text: string, beside: string, sets: readonly string[] = []): Promise<LoadedConfig> {
    const folder = newFolder();
    const [file, overlay] = [join(folder, 'edits.yaml'), join(folder, 'deepspeed_zero2.yaml')];
    writeFileSync(file, text);
    writeFileSync(overlay, beside);
    return loadConfig({ file, overlays: [overlay], sets, env: { APP__DATA_DIR: folder } });
  }

  it("loads the original's script as YAML, with the launcher's file over it", async () => {
    const list = `${script}dataset_name: edits.jsonl\n`;
    const { settings, warnings } = await loadYaml(list, launcher, ['reward.endpoint=http://judge/v1']);
    expect(settings).toMatchObject({
      run_name: 'drgrpo_qwenie',
      base_exp_dir: 'outputs',
      num_iterations: 1000,
      algorithm: { kl_coeff: 0, aggregation: 'dr_grpo' },
      optimizer: { learning_rate: 1e-5, per_device_batch_size: 2, gradient_checkpointing: false },
      rollout: { episodes_per_iteration: 16, generations_per_sample: 16, max_response_tokens: 1024 },
      policy: {
        model_context_size: 9216,
        lora: { rank: 128, alpha: 256, targets: ['q_proj', 'v_proj', 'k_proj', 'o_proj'] },
      },
      environment: {
        type: 'model',
        model_type: 'qwen',
        model: expect.stringMatching(/Qwen-Image-Edit-2509\/transformer$/) as string,
        parts: { vae: expect.stringMatching(/Qwen-Image-Edit-2509\/vae$/) as string },
      },
      reward: { terms: [{ name: 'align_quality', alignment_weight: 0.6, quality_weight: 0.4 }] },
      checkpoint: { save_every_n_iterations: 50, keep_last: 10 },
      launch: { processes: 8 },
    });
    const said = warnings.join('\n');
    const without = ['deepspeed_config', 'mixed_precision', 'complexity', 'image_type', 'n_evals', 'save_only_model'];
    for (const name of without) expect(said).toContain(`${name} has no meaning here`);
  });

  it.each([
    ['num_machines: 2', 'num_machines: found 2; allowed: 1, or left out: one machine trains a run'],
    ['generation_batch_size: 24\ngradient_accumulation_steps: 1', 'generation_batch_size: found 24; allowed: 16'],
    ['openai_api_key: sk-x', 'a key goes into the environment (OPENAI_API_KEY), never into a file'],
    ['use_think_format_reward: true', 'use_think_format_reward: found true; allowed: false'],
    ['alignment_weight: -1', 'alignment_weight: found -1; allowed: a number of at least 0'],
  ])('refuses %j over it', async (line, message) => {
    expect(await refusal(loadYaml(script, `num_processes: 8\n${line}\n`))).toContain(message);
  });

  it('says where YAML is broken', async () => {
    const error: unknown = await loadYaml('a: [1, 2\nb: }', launcher).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({
      message: "Jsonnet's reader of YAML breaks down over it",
      where: expect.stringContaining('edits.yaml') as string,
    });
  });
});
