// EARL's own trainer (rl/nano_aha_moment.py of github.com/mair-lab/EARL: torchrun, DeepSpeed ZeRO-2, vLLM) under this program's runner: put it over
// any RL config of the family. See docs/guide/runs-and-clusters.md.
//   EARL_DIR=/path/to/EARL editrl run configs/sft_s__rl_s.jsonnet --with experiments/foreign/earl.libsonnet
{
  launch+: {
    processes: 4,
    command: ['torchrun', 'experiments/foreign/earl.py'],
    // An iteration of 128 images prints nothing for minutes. A checkpoint of 8 B weights with their moments takes as long to write.
    heartbeat_timeout_s: 7200,
  },
}
