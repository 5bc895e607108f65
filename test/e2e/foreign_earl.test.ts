/** EARL's own trainer as a run: its settings, its records and its checkpoints, with a stub in the place of what needs GPUs. */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { Place } from './editrl.js';

const NAME = 'sft_s__rl_s';
const fixture = (name: string): string => fileURLToPath(new URL(`fixtures/${name}`, import.meta.url));
const RUN = [
  ...['run', `configs/${NAME}.jsonnet`, '--with', 'experiments/foreign/earl.libsonnet'],
  ...['--set', 'launch.command=["python3","experiments/foreign/earl.py"]', '--set', 'launch.processes=2'],
  ...['--set', 'num_iterations=8', '--set', 'checkpoint.save_every_n_iterations=2'],
  ...['--set', 'rollout.generations_per_sample=2'],
];
const ENV = {
  ...{ CUDA_VISIBLE_DEVICES: '', EARL_DIR: fixture('earl'), PYTHONPATH: fixture('earl_packages') },
  ...{ PYTHONDONTWRITEBYTECODE: '1', APP__REWARD_FUNCTION_API_BASE: 'http://judge.example:4877' },
};
const hasPython = spawnSync('python3', ['--version']).status === 0;

const places: Place[] = [];
afterAll(() => places.forEach((place) => place.remove()));

function newPlace(): Place {
  const place = Place.make();
  places.push(place);
  return place;
}

const json = (path: string): unknown => JSON.parse(readFileSync(path, 'utf8'));

// Its reason: the trainer and what starts it are Python scripts.
describe.skipIf(!hasPython)("EARL's own trainer", () => {
  it("has the settings of the config in its own keys, and its metrics and images are the run's", async () => {
    const place = newPlace();
    expect(await place.call(RUN, ENV)).toMatchObject({ code: 0 });
    expect(place.state(NAME)).toMatchObject({ state: 'finished', iteration: 8 });
    const folder = join(place.run(NAME), 'trainer/checkpoints');
    expect(json(join(folder, 'earl_1.json'))).toEqual({
      ...{ assistant_prefill: '<|image start|>', base_exp_dir: folder, run_name: NAME, random_seed: 42 },
      ...{ train_paths_file: [join(place.data, 'emu3_tokenized_rl_100k/omniedit1.2M/train_20250224/list/tokenized_datalist.json')] }, // prettier-ignore
      ...{ val_paths_file: [join(place.data, 'validation_22march_256/feature/list/tokenized_datalist.json')] },
      ...{ coefficients: [1], val_coefficients: [1], num_iterations: 8 },
      model_path: 'Image-Editing/Emu3-Base-SFT-without_cot-Mar04_256_lr1e-4-checkpoint-11600',
      ...{ model_revision: 'main', tokenizer_path: 'BAAI/Emu3-Gen', model_context_size: 3000 },
      ...{ emu3_use_logit_processor: true, separate_language_and_vision_vocabs: true },
      ...{ learning_rate: 3e-6, per_device_batch_size: 8, kl_coeff: 0.0003, temperature: 1, top_p: 1, top_k: -1 },
      ...{ episodes_per_iteration: 128, generations_per_sample: 2, max_response_tokens: 2048 },
      ...{ vllm_gpu_memory_utilization: 0.3, reward_function_api_base: 'http://judge.example:4877/v1' },
      reward_function_api_model_name: 'Qwen/Qwen2.5-VL-72B-Instruct',
      ...{ reward_compute_viescore: true, reward_compute_ground_score: false, reward_final_reward: 'viescore' },
      ...{ log_episodes_every_n_iterations: 5, save_checkpoints_every_n_iterations: 2 },
      ...{ keep_checkpoints_every_n_iterations: 100, push_to_hub_every_n_iterations: 100 },
      push_to_hub_repo_id: `imged_rl__${NAME}`,
    });
    expect(place.metrics(NAME).map(({ iteration, ...metrics }) => [iteration, metrics['reward/mean'], metrics['policy/kl'], metrics['reward/pq'], metrics['active_tokens']])).toEqual(Array.from({ length: 8 }, (_, i) => [i + 1, 4 + i, 0.25, 3, 100])); // prettier-ignore
    const episodes = readFileSync(join(place.run(NAME), 'episodes/000006.jsonl'), 'utf8')
      .trim()
      .split('\n');
    const [first, second, third, fourth] = episodes.map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(first).toMatchObject({
      ...{ key: '6/0/0', instruction: 'prompt 0', text: 'completion 0', finished: true, advantage: 0.5 },
      outcome: { kind: 'scored', value: 5, normalised: 0.5, parts: { pq: 4 } },
    });
    const detail = 'the trainer told a reward of nan';
    expect(second.outcome).toEqual({ kind: 'unscored', reason: 'no_number', detail, parts: { pq: 4 } });
    expect([third.key, fourth.key, fourth.edited, fourth.finished]).toEqual(['6/1/0', '6/1/1', null, false]);
    expect(
      readFileSync(join(place.run(NAME), `media/${String(first.edited)}.png`))
        .subarray(1, 4)
        .toString(),
    ).toBe('PNG');
    const said = place.log(NAME);
    expect(said).toContain('wandb.init');
    expect(said.match(/wandb\.log/g)).toHaveLength(8);
  });

  it('continues from its last checkpoint, and what it learns again replaces what it had reported', async () => {
    const place = newPlace();
    const failed = await place.call(RUN, { ...ENV, FAIL_AT: '5' });
    expect(failed).toMatchObject({ code: 1, err: expect.stringContaining('out of memory') as string });
    expect(await place.call(RUN, ENV)).toMatchObject({ code: 0 });
    expect(place.log(NAME)).toMatch(/rank 0 of 2 begins at 5, port \d+/);
    expect(place.metrics(NAME).map(({ iteration }) => iteration)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
  });

  it('says all that it does not do, and if it is not', async () => {
    const place = newPlace();
    const asked = ['algorithm.clip_range=0.2', 'policy.lora={"rank":8,"alpha":16}', 'algorithm.minibatches=2'];
    asked.push('algorithm.ratio=answer', 'policy.image_header=forced', 'reward.max_judge_calls=100000000'); // prettier-ignore
    asked.push('reward.endpoint=["http://a:1","http://b:1"]');
    const { code, err } = await place.call([...RUN, ...asked.flatMap((set) => ['--set', set])], ENV);
    expect(code).toBe(1);
    expect(err).toContain("the config asks for what EARL's trainer does not do");
    for (const key of [
      'algorithm.clip_range: found 0.2',
      'policy.lora: found {',
      'algorithm.minibatches: found 2',
      'algorithm.ratio: found "answer"',
      'policy.image_header: found "forced"',
      'reward.max_judge_calls: found 100000000',
      'reward.endpoint: found [',
    ]) {
      expect(err).toContain(key);
    }
    const lost = await place.call([...RUN, '--set', 'run_name=lost'], { ...ENV, EARL_DIR: '/nowhere' });
    expect(lost).toMatchObject({ code: 1, err: expect.stringContaining('EARL_DIR: found "/nowhere", in which there is no rl/nano_aha_moment.py') as string }); // prettier-ignore
  });
});
