// SmolLM2-135M-Instruct with LoRA, on two CPU cores. `scripts/fetch_smollm2 data/smollm2` makes its folder.
{
  policy+: {
    model: std.extVar('APP__DATA_DIR') + '/smollm2',
    lora: { rank: 16, alpha: 32, targets: 'all-linear' },
    engine+: { provider: 'cpu' },
  },
  // The frozen weights are packed once.
  rollout+: { packed_weights: 'all' },
  prompt+: {
    system: 'Rewrite the sentence in plain words.',
    examples: [
      { prompt: 'a scarlet wedge beneath an amber plus', answer: 'a red triangle below a yellow cross' },
      { prompt: 'a mauve box east of a teal ring', answer: 'a purple square right of a cyan circle' },
    ],
  },
}
