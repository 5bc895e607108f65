/** A file in the flat form of IP-Adapter training, and the two runs that it stands for. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadExperiment, type Experiment } from '../../src/config/experiment/load.js';
import { loadConfig, loadReferenced, type LoadedConfig } from '../../src/config/load.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('flat-flow');

const whole = {
  model_type: 'tiny',
  learning_rate: 1e-4,
  train_batch_size: 4,
  rl_warmup_steps: 30,
  rl_num_inner_epochs: 2,
  rl_per_prompt_stat_tracking: true,
  ocr_weight: 3,
  vlm_weight: 1,
  num_iterations: 7,
  algorithm: { kl_coeff: 0.1, sft: { batch_size: 8 } },
  policy: {
    train: 'all',
    init: {
      num_layers: 1,
      attention_head_dim: 12,
      num_attention_heads: 2,
      patch: 4,
      text_length: 3,
      ip_adapter: { tokens: 2 },
    },
  },
  data: { train: [{ path: 'data/signs' }], validation: [{ path: 'data/held' }] },
  reward: { endpoint: 'http://127.0.0.1:4877' },
};

function load(content: object, sets: readonly string[] = []): Promise<LoadedConfig> {
  const file = join(newFolder(), 'painter.jsonnet');
  writeFileSync(file, JSON.stringify(content));
  return loadConfig({ file, sets, env: {} });
}

describe('a flat file of IP-Adapter training', () => {
  it('stands for the RL, whose start is the warm-up, which is the same file', async () => {
    const rl = await load(whole);
    const model = { run: 'painter__warmup', config: 'painter.jsonnet' };
    expect(rl.settings).toMatchObject({
      run_name: 'painter',
      num_iterations: 7,
      algorithm: { type: 'grpo', inner_epochs: 2, kl_coeff: 0.1, advantage: { scope: 'group' } },
      optimizer: { learning_rate: 1e-4, per_device_batch_size: 4 },
      policy: { model_type: 'tiny', train: 'all', model, init: null },
      reward: {
        endpoint: 'http://127.0.0.1:4877/v1',
        mode: null,
        terms: [
          { name: 'ocr_confidence', weight: 0.75 },
          { name: 'align_quality', weight: 0.25 },
        ],
      },
    });
    const warmUp = await loadReferenced(rl, model, {});
    expect(warmUp.settings).toMatchObject({
      run_name: 'painter__warmup',
      num_iterations: 30,
      algorithm: { type: 'sft', sft: { batch_size: 8, condition_dropout: 0.1 } },
      optimizer: { learning_rate: 1e-4 },
      policy: { model: null, init: { num_layers: 1 } },
    });
  });

  it('keeps a name of its own', async () => {
    const rl = await load({ ...whole, run_name: 'mine' });
    expect(rl.settings).toMatchObject({ run_name: 'mine', policy: { model: { run: 'mine__warmup' } } });
    const warmUp = await loadReferenced(rl, { run: 'mine__warmup', config: 'painter.jsonnet' }, {});
    expect(warmUp.settings).toMatchObject({ run_name: 'mine__warmup', algorithm: { type: 'sft' } });
  });

  it.each([{}, { run_name: 'mine' }])(
    'is planned, by itself and as the base of cells with warm-ups of their own: %o',
    async (named) => {
      const folder = newFolder();
      const file = join(folder, 'painter.jsonnet');
      writeFileSync(file, JSON.stringify({ ...whole, ...named }));
      const steps = ({ cells, parents }: Experiment): unknown =>
        [...cells, ...parents].map(({ run_name, config: { settings } }) => [
          run_name,
          settings.seed,
          settings.num_iterations,
        ]);
      const { run_name: name = 'painter' } = named;
      expect(steps(await loadExperiment({ file, env: {} }))).toEqual([
        [name, 42, 7],
        [`${name}__warmup`, 42, 30],
      ]);

      const experiment = join(folder, 'seeds.jsonnet');
      const axes = `{ seed: { '1': { seed: 1 } }, rate: { low: { learning_rate: 1e-5 } } }`;
      writeFileSync(experiment, `{ name: 'seeds', base: import 'painter.jsonnet', axes: ${axes}, share: ['seed'] }`);
      const planned = await loadExperiment({ file: experiment, env: {} });
      const warmUp = 'seeds__rate-low__seed-1__warmup__seed-1';
      expect(steps(planned)).toEqual([
        ['seeds__rate-low__seed-1', 1, 7],
        [warmUp, 1, 30],
      ]);
      // As a run that finds it not made yet loads it.
      const { settings } = await loadReferenced(
        planned.cells[0].config,
        { run: warmUp, config: 'painter.jsonnet' },
        {},
      );
      expect(settings).toMatchObject({ run_name: warmUp, algorithm: { type: 'sft' }, num_iterations: 30 });
    },
  );

  it('has no warm-up of 0 steps, and PPO without statistics per prompt', async () => {
    const rest = Object.fromEntries(Object.entries(whole).filter(([key]) => key !== 'rl_per_prompt_stat_tracking'));
    const { settings } = await load({ ...rest, pretrained_model_name_or_path: 'folder', policy: {} }, [
      'rl_warmup_steps=0',
    ]);
    expect(settings).toMatchObject({
      policy: { model: 'folder', init: null },
      algorithm: { type: 'ppo', advantage: { scope: 'batch' }, minibatches: 2 },
    });
  });

  it('names a model of the Hub where no such folder is there', async () => {
    const named = {
      ...whole,
      pretrained_model_name_or_path: 'owner/painter',
      siglip_path: 'google/siglip-so400m-patch14-384',
      policy: {},
      rl_warmup_steps: 0,
    };
    const { settings } = await load(named);
    const image_encoder = { hub: 'google/siglip-so400m-patch14-384', revision: 'main' };
    const model = { hub: 'owner/painter', revision: 'main' };
    expect(settings).toMatchObject({ policy: { model, parts: { image_encoder } } });
  });

  it('weighs what reward servers give where these are asked, and leaves out what weighs nothing', async () => {
    const remote = { name: 'remote', endpoint: 'http://127.0.0.1:4900' };
    const pool = await load({ ...whole, reward: { terms: [{ ...remote, weight: 1 }] } });
    const shares = { ocr_confidence: 0.75, align_quality: 0.25 };
    expect(pool.settings).toMatchObject({ reward: { terms: [{ ...remote, terms: shares }] } });
    const { settings } = await load({ ...whole, vlm_weight: 0 });
    expect(settings).toMatchObject({ reward: { terms: [{ name: 'ocr_confidence', weight: 1 }] } });
  });

  it('says what is wrong in its own words, all at once', async () => {
    const broken = {
      ...whole,
      model_type: 'sdxl',
      rl_warmup_steps: -1,
      rl_per_prompt_stat_tracking: 'yes',
      rl_inner_epochs: 2,
      vlm_weight: 'much',
      policy: { ...whole.policy, model_type: 'tiny' },
    };
    const error = await load(broken).then(
      () => new Error('it was not refused'),
      (raised: unknown) => raised as Error,
    );
    for (const line of [
      'model_type: also given as policy.model_type; keep one of the two',
      'rl_warmup_steps: found -1; allowed: a whole number; 0 means no warm-up',
      'rl_per_prompt_stat_tracking: found "yes"; allowed: true or false',
      'rl_inner_epochs: unknown key; did you mean rl_num_inner_epochs?',
      'vlm_weight: found "much"; allowed: a number of at least 0, beside the other weight',
    ]) {
      expect(error.message).toContain(line);
    }
    await expect(load({ ...whole, model_type: 'sdxl' })).rejects.toThrow(/ model_type: found "sdxl"/);
    await expect(load({ ...whole, algorithm: { type: 'ppo' } })).rejects.toThrow(
      'rl_per_prompt_stat_tracking: also given as algorithm.type; keep one of the two',
    );
    await expect(load({ ...whole, ocr_weight: 0, vlm_weight: 0 })).rejects.toThrow(/vlm_weight: found 0/);
  });

  /** The arguments that train_grpo.sh of Calligrapher passes, and the processes that it launches. */
  const script = {
    model_type: 'flux',
    pretrained_model_name_or_path: '/weights/flux-fill',
    siglip_path: '/weights/siglip',
    train_data_json: 'Calligrapher_bench_testing',
    output_dir: './output_grpo',
    resolution: 512,
    train_batch_size: 1,
    gradient_accumulation_steps: 2,
    learning_rate: 1e-5,
    max_train_steps: 10000,
    mixed_precision: 'fp16',
    gradient_checkpointing: true,
    offload_text_encoder_two: true,
    use_rl: true,
    rl_method: 'grpo',
    rl_warmup_steps: 100,
    rl_num_images_per_prompt: 12,
    rl_num_batches_per_epoch: 1,
    rl_num_inference_steps: 20,
    rl_guidance_scale: 3.5,
    rl_timestep_fraction: 0.5,
    rl_num_inner_epochs: 1,
    rl_grpo_clip_range: 0.2,
    rl_kl_beta: 0.1,
    rl_adv_clip_max: 5,
    rl_per_prompt_stat_tracking: true,
    reward_server_url: 'http://127.0.0.1:8000/score,http://127.0.0.1:8001/score',
    ocr_weight: 0.7,
    vlm_weight: 0.3,
    use_ema: true,
    ema_decay: 0.9999,
    ema_update_interval: 1,
    checkpointing_steps: 500,
    report_to: 'wandb',
    logging_dir: 'logs',
    use_8bit_adam: true,
    launch: { processes: 4 },
    policy: { parts: { vae: '/weights/vae', text_encoder: '/weights/text' }, ip_adapter: { tokens: 128 } },
  };

  it("loads all arguments of Calligrapher's script", async () => {
    const { settings, warnings } = await load(script);
    expect(settings).toMatchObject({
      run_name: 'output_grpo',
      base_exp_dir: '.',
      // Each process learns from 12 pictures' 10 noisy steps, two at a time: 60 optimizer steps, of which 9,900 follow the warm-up.
      num_iterations: 165,
      algorithm: {
        type: 'grpo',
        minibatches: 60,
        inner_epochs: 1,
        clip_range: 0.2,
        kl_coeff: 0.1,
        warmup_steps: 0,
        advantage: { clip: 5 },
      },
      optimizer: { learning_rate: 1e-5, per_device_batch_size: 1, ema_decay: 0.9999, schedule: 'constant' },
      rollout: {
        episodes_per_iteration: 48,
        generations_per_sample: 12,
        num_steps: 20,
        guidance_scale: 3.5,
        timestep_fraction: 0.5,
      },
      data: {
        train: [{ path: expect.stringMatching(/Calligrapher_bench_testing$/) as string }],
        validation: [],
        resolution: 512,
        style_crop: { kind: 'mask' },
      },
      policy: { parts: { image_encoder: '/weights/siglip' } },
      reward: {
        terms: [
          {
            name: 'remote',
            protocol: 'calligrapher',
            endpoint: ['http://127.0.0.1:8000/score', 'http://127.0.0.1:8001/score'],
            terms: { ocr_confidence: 0.7, vlm_score: 0.3 },
          },
        ],
      },
      checkpoint: { save_every_n_iterations: 8, keep_every_n_iterations: 8 },
    });
    expect(settings).toMatchObject({ optimizer: { gradient_checkpointing: true } });
    const said = warnings.join('\n');
    const dropped = ['mixed_precision', 'offload_text_encoder_two', 'report_to', 'logging_dir', 'use_8bit_adam'];
    for (const name of dropped) expect(said).toContain(`${name} has no meaning here, and is left out`);
    expect(said).toContain('rl_kl_beta is algorithm.kl_coeff');
  });

  it('trains supervised alone without use_rl, and reads schedules and averages', async () => {
    const steps = {
      num_iterations: 3,
      use_rl: false,
      lr_scheduler: 'cosine',
      lr_warmup_steps: 1,
      use_ema: false,
      ema_decay: 0.9,
    };
    const { settings, warnings } = await load({ ...script, ...steps });
    expect(settings).toMatchObject({
      num_iterations: 3,
      algorithm: { type: 'sft', sft: { batch_size: 8 } },
      optimizer: { schedule: 'cosine', ema_decay: null },
    });
    expect(warnings.join('\n')).toContain('ema_decay has no effect without use_ema');
  });

  it.each([
    [{ rl_method: 'nft' }, /rl_method: found "nft"; allowed: "grpo", or left out: DiffusionNFT/],
    [
      { initial_ip_adapter_path: 'calligrapher.bin' },
      /initial_ip_adapter_path: found "calligrapher.bin"; .*pickles are never read/,
    ],
    [{ no_rl_reward_model: true }, /no_rl_reward_model: found true; allowed: false/],
    [{ ema_update_interval: 8 }, /ema_update_interval: found 8; allowed: 1/],
    [
      { lr_scheduler: 'polynomial' },
      /lr_scheduler: found "polynomial"; allowed: "constant", "constant_with_warmup", "linear", "cosine"/,
    ],
    [{ max_train_steps: 50 }, /max_train_steps: found 50; allowed: more steps than rl_warmup_steps 100/],
    [{ rl_reward_image_from: 'x' }, /rl_reward_image_from: found "x"/],
  ])('refuses what it cannot follow: %o', async (change, message) => {
    await expect(load({ ...script, ...change })).rejects.toThrow(message);
  });
});
