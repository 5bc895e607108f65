// The laptop size: an overlay for every config of the family (editrl run CONFIG --with configs/lib/tiny.libsonnet).
// It trains on the embedded tiny world, from random weights, with the rule judge, on two CPU cores.

// This file has every number of the tiny size.
local tiny = {
  world: {
    seed: 42,
    grid: 4,
    cell: 8,
    counts: { images: 1500, train: 750, prompts: 4096, validation: 320, truth: 512 },
  },
  decoder: {
    hidden_size: 96,
    intermediate_size: 256,
    num_hidden_layers: 3,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    tie_word_embeddings: false,
    embedding_std: 0.5,
  },
  tokenizer: { codebook_size: 64, patch: 8, hidden: 64, code_dim: 16 },
  context: { plain: 96, think: 160 },
  response: { plain: 28, think: 56 },
  num_iterations: { vq: 1500, sft: 1000, rl: 80 },
  optimizer: {
    vq: { learning_rate: 3e-3, per_device_batch_size: 64 },
    sft: { learning_rate: 1e-3, per_device_batch_size: 32 },
    rl: { learning_rate: 4e-4, per_device_batch_size: 64 },
  },
  algorithm: {
    vq: { sft+: { batch_size: 64, patience: 3, min_delta: 1e-5 } },
    sft: {
      warmup_steps: 20,
      sft+: { batch_size: 32, changed_token_weight: 3, changed_token_weight_after_steps: 100, patience: 5, min_delta: 0.003 },
    },
    rl: {},
  },
  rollout: { episodes_per_iteration: 256, generations_per_sample: 8, chunk_groups: 16, threads: 1 },
  validation: {
    vq: { every_n_iterations: 250, prompts: 256 },
    sft: { every_n_iterations: 25, prompts: 256 },
    rl: { every_n_iterations: 40, prompts: 256 },
  },
  checkpoint: { save_every_n_iterations: 20, keep_every_n_iterations: null, keep_last: 2 },
  judge: { timeout_s: 120, max_reply_tokens: { viescore: 400, ground_score: 700 } },
};

local here = std.split(std.thisFile, '/');
local configs = std.join('/', here[:std.length(here) - 2]);
local base_exp_dir = std.extVar('APP__BASE_EXP_DIR');

{
  // The overlaid config may describe itself. One that does not, such as a file in EARL's flat form, counts as an RL run on simple edits.
  // It starts from the run of this family that thinks, or does not think, like it.
  local says_nothing = !('kind' in super),
  local prefill = if 'assistant_prefill' in super then super.assistant_prefill else null,
  kind:: if 'kind' in super then super.kind else 'rl',
  sets:: if 'sets' in super then super.sets else ['s'],
  validation_sets:: if 'validation_sets' in super then super.validation_sets else self.sets,
  think:: if 'think' in super then super.think else prefill != null && std.length(std.findSubstr('<|start thinking|>', prefill)) > 0,
  start:: if 'start' in super then super.start else if $.think then 'sft_think_s' else 'sft_s',
  // A config of this family names its starts by files beside it.
  local made_by(config) = { run: config, config: (if says_nothing then configs + '/' else '') + config + '.jsonnet' },

  local size = if $.think then 'think' else 'plain',
  // A seed has its own image tokenizer, and so its own folder of samples, which are written in that tokenizer's codes.
  local seed = std.get($, 'seed', 42),
  local world = tiny.world { folder: if seed == 42 then 'tiny' else 'tiny_seed_' + seed },
  local folder = $.data.dir + '/' + world.folder,
  local lists(sets, split) = [{ path: folder + '/' + set + '/' + split + '/list/tokenized_datalist.json' } for set in sets],

  // SFT uses the small labeled split, or half of it for two sets, so that the number of labels stays the same. RL uses many prompts without answers, or prompts with one if the reward
  // compares with the labeled edit.
  local rewards = [std.get($.reward, 'mode'), std.get($, 'reward_final_reward')] + [term.name for term in std.get($.reward, 'terms', [])],
  local needs_truth = std.length([name for name in rewards if name != null && std.length(std.findSubstr('ground_score', name)) > 0]) > 0,
  local labelled = if std.length($.sets) == 1 then 'train' else 'train_half',
  local split = if $.kind == 'sft' then labelled else if needs_truth then 'truth' else 'prompts',

  base_exp_dir: if base_exp_dir == 'runs' then 'runs/tiny' else base_exp_dir,
  num_iterations: tiny.num_iterations[$.kind],
  algorithm+: tiny.algorithm[$.kind],
  // The full size's own AdamW values are left behind: the tiny size uses the defaults.
  optimizer: tiny.optimizer[$.kind],
  rollout+: tiny.rollout { max_response_tokens: tiny.response[size] },
  validation+: tiny.validation[$.kind],
  checkpoint: tiny.checkpoint,
  track+: { push_to_hub: null },
  policy+: {
    model: if $.start == null then null else made_by($.start),
    init: if $.start == null then tiny.decoder else null,
    tokenizer: made_by('tiny_vq'),
    model_context_size: tiny.context[size],
    // A policy this small learns the image's codes alone, and not how EARL's answers are laid out.
    chat_words: true,
    image_header: 'forced',
    end_after_image: false,
    engine+: { provider: 'cpu' },
  },
  environment+: (if $.kind == 'vq' then { init: tiny.tokenizer } else { model: made_by('tiny_vq') }) + { engine+: { provider: 'cpu' } },
  reward+: tiny.judge { endpoint: 'embedded', model: 'editrl-rule-judge' },
  data+: {
    dir: std.extVar('APP__DATA_DIR'),
    tiny: world,
    train: if $.kind == 'vq' then lists(['images'], 'train') else lists($.sets, split),
    validation: if $.kind == 'vq' then lists(['images'], 'train') else lists($.validation_sets, 'validation'),
  },
}
