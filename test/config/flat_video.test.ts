/** A file in the flat form of GRPO on videos. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { loadConfig, type LoadedConfig } from '../../src/config/load.js';
import { testFolders } from '../support/folder.js';

const newFolder = testFolders('flat-video');

const whole = {
  model_name_or_path: 'Qwen/Qwen2.5-VL-3B-Instruct',
  output_dir: './output/grpo_model',
  num_train_epochs: 3,
  per_device_train_batch_size: 1,
  gradient_accumulation_steps: 8,
  learning_rate: 2e-5,
  grpo_alpha: 0.5,
  grpo_beta: 0.1,
  format_reward_weight: 0.3,
  accuracy_reward_weight: 0.7,
  grpo_sample_size: 4,
  generation_temperature: 0.7,
  generation_top_p: 0.9,
  generation_max_length: 64,
  model_max_length: 2048,
  tune_mm_llm: true,
  tune_mm_mlp: true,
  tune_mm_vision: false,
  warmup_ratio: 0.03,
  lr_scheduler_type: 'cosine',
  video_max_frames: 8,
  video_min_frames: 4,
  base_interval: 2,
  save_steps: 100,
  save_total_limit: 3,
  bf16: true,
};

/** A folder with lists of 100 and of 7 samples, beside the config. */
function load(content: object, sets: readonly string[] = []): Promise<LoadedConfig> {
  const folder = newFolder();
  writeFileSync(join(folder, 'assy07_grpo.json'), JSON.stringify(Array(100).fill({})));
  writeFileSync(join(folder, 'other.jsonl'), '{}\n'.repeat(7));
  const file = join(folder, 'clips.jsonnet');
  const datasets = { other: { annotation_path: join(folder, 'other.jsonl'), data_path: '/videos' } };
  writeFileSync(file, JSON.stringify({ datasets, ...content }));
  return loadConfig({ file, sets, env: { APP__DATA_DIR: folder } });
}

const refusal = (loading: Promise<unknown>): Promise<string> =>
  loading.then(
    () => 'loaded',
    (error: Error) => error.message,
  );

describe('a flat file of GRPO on videos', () => {
  it('means what it means to its own program', async () => {
    const { settings, warnings } = await load({ ...whole, dataset_use: 'assy07_grpo%50,other' });
    expect(settings).toMatchObject({
      task: 'video_actions',
      run_name: 'grpo_model',
      base_exp_dir: './output',
      // Three times 57 samples, eight at a time.
      num_iterations: 22,
      algorithm: {
        type: 'grpo',
        reward_scale: 0.5,
        kl_coeff: 0.1,
        warmup_steps: 1,
        advantage: { scope: 'group', scale: 'none' },
      },
      optimizer: { learning_rate: 2e-5, per_device_batch_size: 4, schedule: 'cosine' },
      rollout: {
        episodes_per_iteration: 32,
        generations_per_sample: 4,
        temperature: 0.7,
        top_p: 0.9,
        max_response_tokens: 64,
      },
      policy: {
        model: { hub: 'Qwen/Qwen2.5-VL-3B-Instruct', revision: 'main' },
        model_context_size: 2048,
        train: { mm_vision: false, mm_mlp: true, mm_llm: true },
      },
      data: {
        train: [
          { path: expect.stringMatching(/assy07_grpo\.json$/) as string, media: null, coefficient: 0.5 },
          { path: expect.stringMatching(/other\.jsonl$/) as string, media: '/videos', coefficient: 1 },
        ],
        frames: { min: 4, max: 8, interval: 2 },
      },
      reward: { terms: [{ name: 'format_accuracy', weight: 1, format_weight: 0.3, accuracy_weight: 0.7 }] },
      checkpoint: { save_every_n_iterations: 100, keep_last: 3 },
    });
    expect(warnings.join('\n')).toContain('bf16 has no meaning here');
  });

  it('has the values of its program where it says nothing', async () => {
    const { settings } = await load({ dataset_use: 'other', model_name_or_path: 'a/b' });
    expect(settings).toMatchObject({
      run_name: 'clips',
      num_iterations: 21,
      algorithm: { reward_scale: 0.5, kl_coeff: 0.1, warmup_steps: 0 },
      optimizer: { learning_rate: 2e-5, schedule: 'linear' },
      rollout: {
        episodes_per_iteration: 4,
        generations_per_sample: 4,
        temperature: 0.7,
        top_p: 0.9,
        max_response_tokens: 512,
      },
    });
  });

  it.each([
    { warmup_steps: 0, warmup_ratio: 0.5, steps: 11 },
    { warmup_steps: 4, warmup_ratio: 0.5, steps: 4 },
    { warmup_steps: 4, warmup_ratio: undefined, steps: 4 },
  ])('warms up by steps where there are any, else by the share: $warmup_steps and $warmup_ratio', async (all) => {
    const { steps, ...given } = all;
    const { settings } = await load({ ...whole, ...given, dataset_use: 'other', num_train_epochs: 24 });
    expect(settings).toMatchObject({ num_iterations: 21, algorithm: { warmup_steps: steps } });
  });

  it('keeps the scale of weights that add up to another sum', async () => {
    const { settings } = await load({
      ...whole,
      dataset_use: 'other',
      format_reward_weight: 1,
      accuracy_reward_weight: 1,
    });
    expect(settings).toMatchObject({
      algorithm: { reward_scale: 1 },
      reward: { terms: [{ format_weight: 0.5, accuracy_weight: 0.5 }] },
    });
  });

  it('may be changed in either form', async () => {
    const sets = ['grpo_beta=0.2', 'num_iterations=5', 'rollout.top_p=1'];
    const { settings } = await load({ ...whole, dataset_use: 'other' }, sets);
    expect(settings).toMatchObject({ num_iterations: 5, algorithm: { kl_coeff: 0.2 }, rollout: { top_p: 1 } });
  });

  it.each([
    [{ algorithm: { kl_coeff: 0.2 } }, 'grpo_beta: also given as algorithm.kl_coeff'],
    [{ optimizer: { schedule: 'constant' } }, 'lr_scheduler_type: also given as optimizer.schedule'],
    [{ policy: { model: '/models/mine' } }, 'model_name_or_path: also given as policy.model'],
  ])('does not say a value in both forms: %j', async (canonical, message) => {
    expect(await refusal(load({ ...whole, ...canonical, dataset_use: 'other' }))).toContain(
      `${message}; keep one of the two`,
    );
  });

  it('may say itself how long it trains', async () => {
    const { settings } = await load({ ...whole, num_iterations: 5, dataset_use: 'other' });
    expect(settings.num_iterations).toBe(5);
  });

  it('is refused in its own words', async () => {
    const told = await refusal(
      load({ ...whole, dataset_use: 'nowhere', grpo_sample_sise: 4, accuracy_reward_weight: -1, learning_rate: 0 }),
    );
    expect(told).toContain('grpo_sample_sise: unknown key; did you mean grpo_sample_size?');
    expect(told).toMatch(/num_train_epochs: cannot be counted in iterations: .*nowhere\.json is no list/);
    expect(told).toContain('accuracy_reward_weight: found -1; allowed: a number of at least 0');
    expect(told).toMatch(/learning_rate: found 0/);
  });
});
