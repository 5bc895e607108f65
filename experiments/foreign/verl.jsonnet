// verl's PPO trainer (`python3 -m verl.trainer.main_ppo`) under editrl, with rewards from a reward server. See docs/guide/other-trainers.md.
local data = std.extVar('APP__DATA_DIR');

{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'external',
  seed: 1,
  num_iterations: 200,
  parameters: {
    // `prompt` is the key of extra_info with the question.
    reward: { url: 'http://127.0.0.1:4876', prompt: 'question' },
    // Settings of verl, as dotted keys of its ppo_trainer.yaml.
    verl: {
      'algorithm.adv_estimator': 'grpo',
      'data.train_files': data + '/train.parquet',
      'data.val_files': data + '/validation.parquet',
      'data.train_batch_size': 256,
      'data.max_prompt_length': 512,
      'data.max_response_length': 1024,
      'actor_rollout_ref.model.path': 'Qwen/Qwen2.5-3B-Instruct',
      'actor_rollout_ref.actor.optim.lr': 1e-6,
      'actor_rollout_ref.actor.ppo_mini_batch_size': 64,
      'actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu': 8,
      'actor_rollout_ref.rollout.name': 'vllm',
      'actor_rollout_ref.rollout.n': 8,
      'actor_rollout_ref.rollout.tensor_model_parallel_size': 1,
      'actor_rollout_ref.rollout.gpu_memory_utilization': 0.5,
      'actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu': 8,
      'trainer.n_gpus_per_node': 8,
      'trainer.save_freq': 20,
      'trainer.test_freq': 20,
    },
  },
  // verl starts its own processes on all GPUs of the run.
  launch: { command: ['python3', 'experiments/foreign/verl_ppo.py'], heartbeat_timeout_s: 7200 },
}
