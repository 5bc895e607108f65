/** Runs whose answers vLLM samples: started with the run or before it, killed and resumed, on one process and on two. */
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { StubProgram } from '../train/policies/vllm/program.js';
import { isRunning, Place, type Ended, type Live } from './editrl.js';
import { expectFollowed, killWithin, storedAnswers } from './sampled_runs.js';

const INIT = {
  ...{ hidden_size: 16, intermediate_size: 32, num_hidden_layers: 1, num_attention_heads: 2, num_key_value_heads: 1 },
  embedding_std: 0.5,
};
const ITERATIONS = 5;
const ADAPTER = 'adapter_model.safetensors';

let place: Place;
let program: StubProgram;
/** A model's folder in the Hugging Face layout. */
let model: string;
beforeAll(async () => {
  place = Place.make();
  const small = [
    'policy.engine.provider=cpu',
    'policy.model_context_size=40',
    'prompt.chat=false',
    'validation.prompts=8',
    'validation.every_n_iterations=null',
    'rollout.episodes_per_iteration=16',
    'rollout.generations_per_sample=4',
    'rollout.max_response_tokens=6',
    'optimizer.per_device_batch_size=4',
    'optimizer.learning_rate=0.02',
  ];
  settings = small;
  const made = await run('made', `policy.init=${JSON.stringify(INIT)}`, 'num_iterations=1').ended;
  expect(made).toMatchObject({ code: 0 });
  model = join(place.dir, 'model');
  mkdirSync(model);
  const from = join(place.run('made'), 'checkpoints/000001');
  for (const file of ['config.json', 'generation_config.json', 'tokenizer.json']) {
    copyFileSync(join(from, file), join(model, file));
  }
  copyFileSync(join(from, 'policy.safetensors'), join(model, 'model.safetensors'));
  mkdirSync(join(place.dir, 'vllm'));
  program = new StubProgram(join(place.dir, 'vllm'));
});
afterAll(() => place.remove());

let settings: readonly string[] = [];
function run(name: string, ...sets: readonly string[]): Live {
  const all = [...settings, `run_name=${name}`, ...sets];
  return place.start(['run', 'configs/text_plain.jsonnet', ...all.flatMap((set) => ['--set', set])]);
}

function sampled(name: string, engine: object, ...sets: readonly string[]): Live {
  return run(
    name,
    `policy.model=${model}`,
    'policy.lora={"rank": 2, "alpha": 8}',
    `rollout.engine=${JSON.stringify({ type: 'vllm', ...engine })}`,
    `num_iterations=${ITERATIONS}`,
    'checkpoint.save_every_n_iterations=2',
    ...sets,
  );
}
/** What `resume` says before it starts the server. */
const announced = (): string => `rollout.engine.serve.command: ${program.command.join(' ')}\n`;
const serving = (): object => ({ serve: { command: program.command } });

const adapterOf = (name: string): Buffer => place.checkpointFile(name, ITERATIONS, ADAPTER);
const storedOf = (name: string): number => storedAnswers(place, name);
/** Kills a run in iteration 4, whose checkpoint is not written yet; how many answers it has stored. */
const killed = (run: string, start: () => Live): Promise<number> =>
  killWithin({ place, program, run, start, before: 2 * 8 + 3 * 16, given: 8 });

describe('a run whose answers vLLM samples', () => {
  let whole: Ended;
  beforeAll(async () => {
    whole = await sampled('whole', serving()).ended;
  });

  it('starts the server, learns from its answers, and leaves nothing running', () => {
    expect(whole).toMatchObject({ code: 0, err: '' });
    expect(whole.out).toContain('its log-probabilities are of the sampled distribution (processed) and are used');
    const lines = place.metrics('whole').slice(1);
    expectFollowed(lines, ITERATIONS);
    expect(lines.some((line) => Number(line['policy/grad_norm']) > 0)).toBe(true);
    // Another version of the adapter for each iteration, and none is left.
    expect(readdirSync(join(place.run('whole'), 'adapters'))).toEqual([]);
    for (const { pid } of program.starts) expect(isRunning(pid)).toBe(false);
    expect(readFileSync(join(place.run('whole'), 'logs/attempt_001/vllm.log'), 'utf8')).toContain('startup complete');
    // 8 held-out prompts in two manners, twice.
    expect(storedOf('whole')).toBe(ITERATIONS * 16 + 4 * 8);
  });

  it('killed between what is stored and the next checkpoint ends with the same weights, and asks for nothing again', async () => {
    const kept = await killed('killed', () => sampled('killed', serving()));
    expect(place.state('killed')?.iteration).toBeLessThan(ITERATIONS);

    const resumed = await place.call(['resume', 'killed']);
    expect(resumed).toMatchObject({ code: 0, err: announced() });
    expect(resumed.out).toContain('resuming killed from iteration 2');
    expect(adapterOf('killed').equals(adapterOf('whole'))).toBe(true);
    expect(adapterOf('killed').equals(place.checkpointFile('killed', 4, ADAPTER))).toBe(false);
    // What was stored was not asked for again.
    expect(storedOf('killed')).toBe(storedOf('whole'));
    expect(kept).toBeLessThan(storedOf('whole'));
  });

  it('on two processes samples the same, and rank 0 keeps the answers of both', async () => {
    const two = await sampled('two', serving(), 'launch.processes=2', 'num_iterations=1').ended;
    expect(two).toMatchObject({ code: 0, err: '' });
    const episodes = (name: string): unknown[] =>
      readFileSync(join(place.run(name), 'episodes/000001.jsonl'), 'utf8')
        .trim()
        .split('\n')
        .map((line) => (JSON.parse(line) as { text: unknown }).text);
    expect(episodes('two')).toEqual(episodes('whole'));
    expect(storedOf('two')).toBe(16 + 4 * 8);
  });
});

describe('a run that trains all weights', () => {
  it('brings them to the server for every iteration, and resumes to the same', async () => {
    const whole = await sampled('all', serving(), 'policy.lora=null').ended;
    expect(whole).toMatchObject({ code: 0, err: '' });
    expect(whole.out).toContain('samples with all weights of');
    const lines = place.metrics('all').slice(1);
    expect(lines).toHaveLength(ITERATIONS);
    for (const line of lines) expect(line['policy/rollout_mismatch']).toBeLessThan(1e-4);
    expect(lines.some((line) => Number(line['policy/grad_norm']) > 0)).toBe(true);
    expect(readdirSync(join(place.run('all'), 'adapters'))).toEqual([]);

    await killed('all_killed', () => sampled('all_killed', serving(), 'policy.lora=null'));
    expect(await place.call(['resume', 'all_killed'])).toMatchObject({ code: 0, err: announced() });
    const weights = (name: string): Buffer => place.checkpointFile(name, ITERATIONS, 'policy.safetensors');
    expect(weights('all_killed').equals(weights('all'))).toBe(true);
  });
});

describe('what cannot be', () => {
  const refused = async (...sets: readonly string[]): Promise<string> => {
    const ended = await sampled('refused', serving(), ...sets).ended;
    expect(ended.code).not.toBe(0);
    expect(existsSync(place.run('refused'))).toBe(false);
    return ended.err;
  };

  it('is rejected before anything starts', async () => {
    expect(await refused('policy.lora=null', 'policy.model=null', `policy.init=${JSON.stringify(INIT)}`)).toContain(
      'random initial weights',
    );
    expect(await refused('rollout.engine={"type": "vllm"}')).toContain('neither base_url nor serve');
    expect(await refused('rollout.engine.serve.command=["no-such-vllm"]')).toContain("no program 'no-such-vllm'");
    expect(await refused(`policy.model=${join(place.run('made'), 'checkpoints/000001')}`)).toContain(
      'there are no model.safetensors',
    );
  });
});
