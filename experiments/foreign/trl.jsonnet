// TRL's GRPOTrainer trains a LoRA adapter under editrl, with rewards from a reward server. See docs/guide/other-trainers.md.
// The policy is the tiny text model by default. Another model, dataset or GPUs are an overlay: trl_8_gpus.libsonnet.
{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'external',
  seed: 1,
  num_iterations: 60,
  parameters: {
    // A folder or a name of the Hub.
    model: std.extVar('APP__BASE_EXP_DIR') + '/tiny_text',
    // JSON lines with the columns `prompt`, `expected` and, for a vision-language model, `image` (a path).
    dataset: {
      train: std.extVar('APP__DATA_DIR') + '/tiny/words/train.jsonl',
      validation: std.extVar('APP__DATA_DIR') + '/tiny/words/validation.jsonl',
      validation_rows: 256,
      template: '{prompt} means',
      // Whether the prompt is a user's message in the chat template of the model.
      chat: false,
    },
    // Fields of the reward server and the columns that hold them.
    reward: { url: 'http://127.0.0.1:4876', columns: { expected: 'expected' } },
    lora: { r: 16, lora_alpha: 32, target_modules: 'all-linear' },
    // Settings of trl.GRPOConfig.
    grpo: {
      per_device_train_batch_size: 64,
      per_device_eval_batch_size: 256,
      num_generations: 8,
      num_generations_eval: 1,
      max_completion_length: 24,
      learning_rate: 2e-3,
      lr_scheduler_type: 'constant',
      beta: 0.0,
      gradient_checkpointing: false,
      eval_strategy: 'steps',
      eval_steps: 20,
      eval_on_start: true,
      save_steps: 20,
      use_cpu: true,
    },
  },
  launch: { command: ['python3', 'experiments/foreign/trl_grpo.py'], devices: [], env: { OMP_NUM_THREADS: '1' } },
}
