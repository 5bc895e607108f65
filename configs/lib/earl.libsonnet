// EARL's values at full size: what its SFT and its RL runs share.
//
// A config is one of lib/sft.libsonnet, lib/rl.libsonnet and lib/vq.libsonnet plus a few of the hidden fields below;
// everything else follows from them, and so does the laptop size (lib/tiny.libsonnet).
local data_dir = std.extVar('APP__DATA_DIR');
local datalist(path) = { path: data_dir + '/' + path + '/list/tokenized_datalist.json', coefficient: 1.0 };

{
  kind:: error 'use lib/sft.libsonnet, lib/rl.libsonnet or lib/vq.libsonnet',
  sets:: ['s'],  // which edits it trains on: 's' simple, 'c' complex
  validation_sets:: self.sets,  // which held-out edits it is evaluated on, where they are kept apart
  think:: false,  // whether the policy reasons in words before it edits
  start:: null,  // the config whose result it starts from, without '.jsonnet'; null means base_model

  // The checkpoints that EARL's files name. Replace one to start from your own: { checkpoints+:: { sft_s: '/path/to/checkpoint' } }.
  // For sft_think_s they name that of sft_s, which was trained without reasoning; EARL has published the two starts on simple edits as
  // mair-lab/sft-simple and mair-lab/thinking-sft-simple.
  base_model:: { hub: 'BAAI/Emu3-Stage1' },
  checkpoints:: {
    sft_s: { hub: 'Image-Editing/Emu3-Base-SFT-without_cot-Mar04_256_lr1e-4-checkpoint-11600' },
    sft_sc: { hub: 'Image-Editing/Emu3-Base-SFT-without_cot-May06_mixed_gc_lr1e-4-checkpoint-4800' },
    sft_sc2stage: { hub: 'Image-Editing/Emu3-Base-SFT-without_cot-May07_mixed_gc_post_lr1e-4-checkpoint-1200' },
    sft_think_s: self.sft_s,
  },
  datasets:: {
    s: [datalist('emu3_tokenized_rl_100k/omniedit1.2M/train_20250224')],
    c: [datalist('emu3_tokenized_rl_100k/' + name) for name in [
      'aurora_ag/train_20250208_256',
      'aurora_kubric/train_3may_256',
      'human-edit/train_20250208_256',
      'magicbrush/train_20250208_256',
      'ss2/train_3may_256',
      'vismin/train_3may_relcnt_256',
    ]],
  },

  run_name: std.extVar('APP__RUN_NAME'),
  base_exp_dir: std.extVar('APP__BASE_EXP_DIR'),
  task: 'image_edit_tokens',
  data: {
    dir: data_dir,
    train: std.flattenArrays([$.datasets[set] for set in $.sets]),
    validation: [datalist('validation_22march_256/feature')],
  },
  policy: {
    model: if $.start == null then $.base_model else $.checkpoints[$.start],
    tokenizer: { hub: 'BAAI/Emu3-Gen' },
    assistant_prefill: if $.think then " Let's think step by step. <|start thinking|>" else '<|image start|>',
    model_context_size: if $.think then 4096 else 3000,
    emu3_use_logit_processor: true,
    separate_language_and_vision_vocabs: true,
  },
  environment: { model: { hub: 'BAAI/Emu3-VisionTokenizer' } },
  rollout: {
    episodes_per_iteration: 128,
    generations_per_sample: 8,
    max_response_tokens: 2048,
    temperature: 1.0,
    top_p: 1.0,
    top_k: -1,
  },
  reward: {
    // The mode is viescore, the schema's default. It is not written down, so that terms may stand in its place.
    endpoint: std.extVar('APP__REWARD_FUNCTION_API_BASE'),
    model: 'Qwen/Qwen2.5-VL-72B-Instruct',
    timeout_s: 1000,
    max_reply_tokens: { viescore: 1400, ground_score: 1300 },
  },
  checkpoint: { save_every_n_iterations: 100, keep_every_n_iterations: 100 },
}
