// Twenty-four runs of another trainer: a shell script that counts its starts and crashes where a folder has a file of its name.
local script = |||
  echo "$RUN_NAME" >> "$SWEEP_STARTS"
  if rm "$SWEEP_CRASHES/$RUN_NAME" 2>/dev/null; then
    echo 'ValueError: made to crash' >&2
    exit 3
  fi
  sleep "$SWEEP_SECONDS"
  echo '{"iteration": 1, "validation/sampled/mean": '"$SWEEP_SCORE"'}' >> "$EDITRL_METRICS"
|||;
local score(value) = { launch+: { env+: { SWEEP_SCORE: value } } };
local names(prefix, count) = ['%s%d' % [prefix, i] for i in std.range(1, count)];
{
  name: 'small_sweep',
  base: {
    run_name: 'small_sweep',
    base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
    task: 'external',
    num_iterations: 1,
    launch: { command: ['sh', '-c', script] },
  },
  axes: {
    score: { low: score('4'), middle: score('5'), high: score('6') },
    seed: { [i]: { seed: std.parseInt(i) } for i in names('', 8) },
  },
  baseline: { score: 'low' },
}
