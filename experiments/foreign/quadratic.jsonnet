// A run whose trainer is somebody else's: two processes of a Python script. See docs/guide/runs-and-clusters.md.
{
  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'external',
  seed: 1,
  num_iterations: 40,
  parameters: { dimensions: 8, learning_rate: 0.1, noise: 0.3, save_every: 10 },
  launch: { processes: 2, command: ['python3', 'experiments/foreign/quadratic.py'] },
}
