// flow_grpo's trainer of Stable Diffusion 3.5 under editrl, with rewards from a reward server. FLOW_GRPO names a clone of
// github.com/yifan123/flow_grpo. See docs/guide/other-trainers.md.
{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'external',
  seed: 42,
  // Epochs of flow_grpo.
  num_iterations: 300,
  parameters: {
    script: 'scripts/train_sd3.py',
    // A function of the clone's config/grpo.py, and keys that replace its own.
    config: 'general_ocr_sd3_1gpu',
    keys: { save_freq: 20, eval_freq: 20 },
    reward: { url: 'http://127.0.0.1:4876', columns: {} },
  },
  launch: {
    command: ['accelerate', 'launch', '--main_process_port', '0', 'experiments/foreign/flow_grpo_run.py'],
    heartbeat_timeout_s: 7200,
  },
}
