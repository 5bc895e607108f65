import { readdirSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { loadReferenced } from '../../src/config/load.js';
import { cannotRunYet, dependencies } from '../../src/config/models.js';
import { isTrainable } from '../../src/config/recipes.js';
import type { RunSettings, TrainedSettings } from '../../src/config/schema/run.js';
import { loadEvaluated } from './evaluated.js';
import { env, family, load, loadsAtBothSizes, quick, tiny } from './family_cases.js';
import { editSettings, loadTrained } from './trained.js';

/** The keys that tell the family's members apart. */
function essence(settings: RunSettings): unknown {
  const { policy, environment, data, algorithm, optimizer, rollout, reward, num_iterations, base_exp_dir } =
    editSettings(settings);
  return {
    model: policy.model,
    init: policy.init === null ? null : `${policy.init.num_hidden_layers}x${policy.init.hidden_size}`,
    prefill: policy.assistant_prefill,
    environment: environment.model,
    train: data.train.map(
      ({ path, coefficient }) => `${coefficient ?? 'balanced'} ${path.replace('/list/tokenized_datalist.json', '')}`,
    ),
    validation: data.validation.map(({ path }) => path.replace('/list/tokenized_datalist.json', '')),
    algorithm: algorithm.type === 'grpo' ? `grpo kl ${algorithm.kl_coeff}` : `sft batch ${algorithm.sft.batch_size}`,
    optimizer: `${optimizer.learning_rate} x ${num_iterations}, micro-batch ${optimizer.per_device_batch_size}`,
    rollout: `${rollout.episodes_per_iteration}/${rollout.generations_per_sample} to ${rollout.max_response_tokens}`,
    judge: `${reward.mode} by ${reward.model} at ${JSON.stringify(reward.endpoint)}`,
    base_exp_dir,
  };
}

describe('the shipped family', () => {
  it('has every start and run of EARL, the tiny tokenizer, the answers in words, the flow policy, rewritten prompts, questions about videos and responses', () => {
    const shipped = readdirSync('configs').filter((name) => name.endsWith('.jsonnet'));
    expect(shipped.sort()).toEqual(
      [
        ...family,
        ...['tiny_vq', 'tiny_vae', 'text_start', 'text_plain', 'ip_adapter_warmup', 'ip_adapter'],
        ...['tiny_painter', 'tiny_clip', 'enhance_start', 'enhance_smollm2_start', 'prompt_enhance'],
        ...['video_sight', 'video_start', 'video_actions'],
        ...['edit_start', 'tiny_editor', 'untold_editor', 'edit_response'],
        ...['image_editor_start', 'image_editor'],
      ]
        .map((name) => `${name}.jsonnet`)
        .sort(),
    );
  });

  loadsAtBothSizes(quick);

  it('ip_adapter takes one optimizer step an iteration at laptop size', async () => {
    const overlays = ['configs/lib/ip_adapter_tiny.libsonnet'];
    const small = await loadEvaluated({ file: 'configs/ip_adapter.jsonnet', overlays, env });
    expect(small.settings).toMatchObject({ algorithm: { clip_range: null, minibatches: 1 } });
    expect(small.warnings).toEqual([]);
  });

  it.each([
    [
      'trl_qwen_ie',
      'edit_response',
      {
        optimizer: { learning_rate: 1e-5, per_device_batch_size: 1 },
        rollout: { episodes_per_iteration: 16, generations_per_sample: 8 },
        algorithm: { kl_coeff: 0 },
        reward: { terms: [{ name: 'align_quality', weight: 1 }] },
      },
    ],
    [
      'Calligrapher',
      'ip_adapter',
      {
        optimizer: { learning_rate: 1e-4 },
        rollout: { num_steps: 50, guidance_scale: 3.5 },
        algorithm: { clip_range: 0.2, kl_coeff: 0, advantage: { clip: 5 } },
        reward: {
          terms: [
            { name: 'ocr_confidence', weight: 0.6 },
            { name: 'align_quality', weight: 0.4 },
          ],
        },
      },
    ],
    ["Calligrapher's warm-up", 'ip_adapter_warmup', { num_iterations: 1000, algorithm: { warmup_steps: 0 } }],
    [
      'grpodiffimprove',
      'prompt_enhance',
      { reward: { terms: [{ name: 'clip', weight: 1 }], also_compute: ['prompt_quality'] } },
    ],
    [
      'Qwen2.5-VL-Video',
      'video_actions',
      {
        optimizer: { learning_rate: 2e-5 },
        algorithm: { reward_scale: 0.5, kl_coeff: 0.1 },
        rollout: { generations_per_sample: 4, temperature: 0.7, top_p: 0.9, max_response_tokens: 512 },
        policy: { train: { mm_vision: false, mm_mlp: true, mm_llm: true } },
        reward: { terms: [{ name: 'format_accuracy', format_weight: 0.3, accuracy_weight: 0.7 }] },
      },
    ],
  ])('has the values of %s', async (_, config, values) => {
    const { settings, warnings } = await loadEvaluated({ file: `configs/${config}.jsonnet`, env });
    expect(settings).toMatchObject(values);
    expect(warnings).toEqual([]);
  });

  it('sft_s__rl_c at full size has the values of EARL', async () => {
    expect(essence(await load('sft_s__rl_c', 'full'))).toMatchInlineSnapshot(`
      {
        "algorithm": "grpo kl 0.0003",
        "base_exp_dir": "runs",
        "environment": {
          "hub": "BAAI/Emu3-VisionTokenizer",
          "revision": "main",
        },
        "init": null,
        "judge": "viescore by Qwen/Qwen2.5-VL-72B-Instruct at "http://judge:4877/v1"",
        "model": {
          "hub": "Image-Editing/Emu3-Base-SFT-without_cot-Mar04_256_lr1e-4-checkpoint-11600",
          "revision": "main",
        },
        "optimizer": "0.000003 x 2000, micro-batch 8",
        "prefill": "<|image start|>",
        "rollout": "128/8 to 2048",
        "train": [
          "1 data/emu3_tokenized_rl_100k/aurora_ag/train_20250208_256",
          "1 data/emu3_tokenized_rl_100k/aurora_kubric/train_3may_256",
          "1 data/emu3_tokenized_rl_100k/human-edit/train_20250208_256",
          "1 data/emu3_tokenized_rl_100k/magicbrush/train_20250208_256",
          "1 data/emu3_tokenized_rl_100k/ss2/train_3may_256",
          "1 data/emu3_tokenized_rl_100k/vismin/train_3may_relcnt_256",
        ],
        "validation": [
          "data/validation_22march_256/feature",
        ],
      }
    `);
  });

  it('sft_s at full size falls to a tenth of its learning rate, as EARL does; the laptop size stays', async () => {
    const { optimizer } = editSettings(await load('sft_s', 'full'));
    expect(optimizer).toMatchObject({ schedule: 'cosine', min_learning_rate_ratio: 0.1 });
    const { optimizer: small } = editSettings(await load('sft_s', 'tiny'));
    expect(small).toMatchObject({ schedule: 'constant', min_learning_rate_ratio: 0 });
  });

  it('sft_think_s__rl_sc at full size has room to think, and publishes as EARL does', async () => {
    const settings = editSettings(await load('sft_think_s__rl_sc', 'full'));
    expect(settings.policy.assistant_prefill).toBe(" Let's think step by step. <|start thinking|>");
    expect(settings.policy.model_context_size).toBe(4096);
    expect(settings.optimizer.per_device_batch_size).toBe(4);
    expect(settings.track.push_to_hub).toEqual({
      every_n_iterations: 100,
      repo_id: 'imged_rl__sft_think_s__rl_sc',
      private: true,
    });
  });

  it('asks a judge of full size as EARL does, and the rule judge as briefly as ever', async () => {
    const [full, small] = [
      editSettings(await load('sft_s__rl_c', 'full')),
      editSettings(await load('sft_s__rl_c', 'tiny')),
    ];
    expect(full.reward).toMatchObject({ timeout_s: 1000, max_reply_tokens: { viescore: 1400, ground_score: 1300 } });
    expect(small.reward).toMatchObject({ timeout_s: 120, max_reply_tokens: { viescore: 400, ground_score: 700 } });
  });

  it('sft_sc2stage at laptop size', async () => {
    expect(essence(await load('sft_sc2stage', 'tiny'))).toMatchInlineSnapshot(`
      {
        "algorithm": "sft batch 32",
        "base_exp_dir": "runs/tiny",
        "environment": {
          "config": "tiny_vq.jsonnet",
          "run": "tiny_vq",
        },
        "init": null,
        "judge": "viescore by editrl-rule-judge at "embedded"",
        "model": {
          "config": "sft_s.jsonnet",
          "run": "sft_s",
        },
        "optimizer": "0.001 x 1000, micro-batch 32",
        "prefill": "<|image start|>",
        "rollout": "256/8 to 28",
        "train": [
          "balanced data/tiny/s/train_half",
          "balanced data/tiny/c/train_half",
        ],
        "validation": [
          "data/tiny/s/validation",
          "data/tiny/c/validation",
        ],
      }
    `);
  });

  it('a reward that compares with the answer draws on labeled prompts', async () => {
    const sets = ['reward.mode=ground_score'];
    const bySet = await loadTrained({ file: 'configs/sft_s__rl_s.jsonnet', overlays: tiny, sets, env });
    expect(bySet.settings.data.train[0].path).toContain('/prompts/');
    const inOverlay = await loadTrained({
      file: 'configs/sft_s__rl_s.jsonnet',
      overlays: [...tiny, 'test/config/fixtures/ground_score.libsonnet'],
      env,
    });
    expect(inOverlay.settings.data.train[0].path).toContain('/truth/');
  });

  it('names the runs that have to be there first, and loads them with the same overlays', async () => {
    const run = await loadEvaluated({
      file: 'configs/sft_s__rl_s.jsonnet',
      overlays: tiny,
      sets: ['seed=7'],
      env: { APP__RUN_NAME: 'mine' },
    });
    const needed = dependencies(run.settings);
    expect(needed).toEqual([
      { run: 'tiny_vq', config: 'tiny_vq.jsonnet' },
      { run: 'sft_s', config: 'sft_s.jsonnet' },
    ]);
    const [tokenizer, start] = await Promise.all(
      needed.map((reference) => loadReferenced(run, reference, { APP__RUN_NAME: 'mine' })),
    );
    expect([tokenizer.settings.run_name, tokenizer.settings.task]).toEqual(['tiny_vq', 'image_tokenizer']);
    expect([start.settings.run_name, start.settings.seed]).toEqual(['sft_s', 42]);
    expect(start.settings.base_exp_dir).toBe('runs/tiny');
    expect(editSettings(start.settings).policy.model).toBeNull();
  });

  describe('text_plain', () => {
    const overlays = ['configs/lib/text_tiny.libsonnet'];

    it('alone is a base that lacks a model', async () => {
      const { settings } = await loadEvaluated({ file: 'configs/text_plain.jsonnet', env });
      expect(cannotRunYet(settings)).toEqual([expect.stringContaining('policy.model is null')]);
    });

    it('at laptop size starts from labels, and learns the rest from rewards', async () => {
      const run = await loadTrained({ file: 'configs/text_plain.jsonnet', overlays, env: {} });
      const { settings } = run;
      expect(cannotRunYet(settings)).toEqual([]);
      expect(settings).toMatchObject({
        run_name: 'text_plain',
        base_exp_dir: 'runs/tiny',
        algorithm: { type: 'grpo' },
      });
      expect(settings.data.train.map(({ path }) => path)).toEqual(['data/tiny/words/train.jsonl']);
      const needed = dependencies(settings);
      expect(needed).toEqual([{ run: 'text_start', config: 'text_start.jsonnet' }]);
      const { settings: start } = await loadReferenced(run, needed[0], {});
      if (!isTrainable(start)) throw new Error('a config of another trainer');
      expect(start).toMatchObject({ run_name: 'text_start', algorithm: { type: 'sft' }, policy: { model: null } });
      expect(start.data?.train.map(({ path }) => path)).toEqual(['data/tiny/words/labelled.jsonl']);
      expect(cannotRunYet(start)).toEqual([]);
      // Both read one world, and write in the same words.
      expect(start).toMatchObject({ data: { tiny: (settings.data as { tiny?: object }).tiny } });
    });

    it('with SmolLM2 trains adapters over it', async () => {
      const smollm2 = ['configs/lib/smollm2.libsonnet'];
      const { settings } = await loadTrained({ file: 'configs/text_plain.jsonnet', overlays: smollm2, env: {} });
      expect(cannotRunYet(settings)).toEqual([]);
      expect(settings).toMatchObject({
        num_iterations: 60,
        policy: { model: 'data/smollm2', init: null, lora: { rank: 16, targets: 'all-linear' } },
        rollout: { episodes_per_iteration: 64, max_response_tokens: 24 },
        validation: { prompts: 256 },
      });
    });
  });

  describe('the one of rewritten prompts', () => {
    it('with SmolLM2 starts from labels, and leaves the image model and CLIP as they are', async () => {
      const smollm2 = ['configs/lib/enhance_smollm2.libsonnet'];
      const run = await loadTrained({ file: 'configs/prompt_enhance.jsonnet', overlays: smollm2, env: {} });
      expect(cannotRunYet(run.settings)).toEqual([]);
      expect(run.settings).toMatchObject({
        algorithm: { type: 'grpo' },
        policy: { lora: { rank: 16 } },
        rollout: { episodes_per_iteration: 64, max_response_tokens: 24 },
        validation: { prompts: 256 },
      });
      const parents = await Promise.all(
        dependencies(run.settings).map(async (reference) => (await loadReferenced(run, reference, {})).settings),
      );
      const [painter, start, clip] = parents as TrainedSettings[];
      expect(parents.map(({ run_name }) => run_name)).toEqual(['tiny_painter', 'enhance_smollm2_start', 'tiny_clip']);
      expect([painter.num_iterations, clip.num_iterations]).toEqual([1200, 600]);
      expect(start).toMatchObject({
        algorithm: { type: 'sft' },
        policy: { model: 'data/smollm2', lora: { rank: 16 } },
        prompt: { ...(run.settings as unknown as { prompt: object }).prompt },
      });
      expect(start.data?.train.map(({ path }) => path)).toEqual(['data/tiny/words/labelled.jsonl']);
      expect(cannotRunYet(start)).toEqual([]);
    });
  });
});
