// Eight GPUs and a vision-language model: DeepSpeed ZeRO-3, and rollouts by vLLM on the same GPUs. Put it over trl.jsonnet. Not run by us.
// The rows have `prompt`, `expected` and `image`, a path. The reward reads the answer, its label and the image.
{
  local data = std.extVar('APP__DATA_DIR'),
  num_iterations: 500,
  parameters+: {
    model: 'Qwen/Qwen2.5-VL-7B-Instruct',
    dataset+: { train: data + '/train.jsonl', validation: data + '/validation.jsonl', template: '{prompt}', chat: true },
    reward+: { columns+: { source: 'image' } },
    grpo+: {
      use_cpu: false,
      bf16: true,
      gradient_checkpointing: true,
      deepspeed: {
        bf16: { enabled: true },
        zero_optimization: { stage: 3 },
        gradient_clipping: 'auto',
        gradient_accumulation_steps: 'auto',
        train_batch_size: 'auto',
        train_micro_batch_size_per_gpu: 'auto',
      },
      use_vllm: true,
      vllm_mode: 'colocate',
      vllm_gpu_memory_utilization: 0.3,
      per_device_train_batch_size: 8,
      per_device_eval_batch_size: 8,
      gradient_accumulation_steps: 2,
      max_completion_length: 512,
      learning_rate: 1e-5,
    },
  },
  launch+: {
    processes: 8,
    devices: null,
    command: ['accelerate', 'launch', '--main_process_port', '0', 'experiments/foreign/trl_grpo.py'],
    env: {},
    heartbeat_timeout_s: 7200,
  },
}
