import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { LoadRequest } from '../../src/config/load.js';
import { cannotRunYet } from '../../src/config/models.js';
import { EditrlError } from '../../src/core/errors.js';
import { testFolder } from '../support/folder.js';
import { loadEvaluated } from './evaluated.js';

const folder = testFolder('config');
const base = { file: 'configs/sft_s__rl_s.jsonnet', overlays: ['configs/lib/tiny.libsonnet'], env: {} };

/** What a person reads when a config does not load. */
async function textOf(request: LoadRequest): Promise<string> {
  try {
    await loadEvaluated(request);
  } catch (error) {
    if (error instanceof EditrlError && error.exitCode === 2) return error.toText().replaceAll(folder, '/tmp');
    throw error;
  }
  return 'loads';
}

function withSets(...sets: string[]): Promise<string> {
  return textOf({ ...base, sets });
}

function withFile(text: string, name = 'mine.jsonnet'): Promise<string> {
  const file = join(folder, name);
  writeFileSync(file, text);
  return textOf({ file, env: {} });
}

describe('a config that does not evaluate', () => {
  it('is malformed', async () => {
    expect(await withFile("{\n  seed: 1,\n  run_name: 'x'\n  task: 2,\n}\n")).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:4:3: expected a comma before next field.
        Correct the file. editrl has Jsonnet 0.20.0 built in."
    `);
  });

  it('is wrong over several lines', async () => {
    expect(await withFile("{\n  base: import ('a'\n    + '.jsonnet'),\n}\n")).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:2:16: computed imports are not allowed.
        Correct the file. editrl has Jsonnet 0.20.0 built in."
    `);
    expect(await withFile("{\n  a: {\n    b: error ('too long: ' +\n      'two\\nlines'),\n  },\n}\n"))
      .toMatchInlineSnapshot(`
        "/tmp/mine.jsonnet:3:8: too long: two
        lines
          Correct the file; editrl config show prints what a config evaluates to."
      `);
    expect(await withFile("{\n  val_base_dir: std.extVar('APP__DATA_DIR')',\n}\n")).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:2:44: unterminated string
        Correct the file. editrl has Jsonnet 0.20.0 built in."
    `);
  });

  it('asks the standard library for what it refuses', async () => {
    expect(await withFile("{\n  seed: std.parseInt('x'),\n}\n")).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:2:9: x is not a base 10 integer
        Correct the file; editrl config show prints what a config evaluates to."
    `);
  });

  it('reads an unset external variable', async () => {
    expect(await withFile("{\n  base_exp_dir: std.extVar('APP__BASE_EXP_DR'),\n}\n")).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:2:17: undefined external variable: APP__BASE_EXP_DR
        Set it before the command: export APP__BASE_EXP_DR=… (or did you mean APP__BASE_EXP_DIR?)"
    `);
    expect(await withFile("{ a: std.extVar('HOME') }\n")).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:1:6: undefined external variable: HOME
        External variables are the environment's APP__*: rename it to APP__HOME and export that."
    `);
  });

  it('imports what is not there', async () => {
    expect(await withFile("{ a: 1 } + import 'lib/tiny.libsonet'")).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:1:12: couldn't open import "lib/tiny.libsonet": no match locally or in the Jsonnet library paths.
        Write the path relative to the file that imports it. There is no library path: JSONNET_PATH has no effect."
    `);
  });

  it('imports a folder', async () => {
    mkdirSync(join(folder, 'parts'), { recursive: true });
    expect(await withFile("{\n  a: import 'parts',\n}")).toMatchInlineSnapshot(
      `"/tmp/mine.jsonnet:2: import 'parts': this is a folder, not a plain file"`,
    );
    expect(await withFile("{ a: import 'parts/' }")).toMatchInlineSnapshot(
      `"/tmp/mine.jsonnet:1: import 'parts/': this is a folder, not a plain file"`,
    );
    expect(await withFile("{ a: importstr './parts' }")).toMatchInlineSnapshot(
      `"/tmp/mine.jsonnet:1: importstr './parts': this is a folder, not a plain file"`,
    );
  });

  it('has a function for a value', async () => {
    expect(await withFile('{\n  seed: function(x) x,\n}\n')).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:2:9: couldn't manifest function in JSON output.
        Call the function, or hide its field with \`::\`."
    `);
  });

  it('imports what imports it', async () => {
    writeFileSync(join(folder, 'one.libsonnet'), "{ a: (import 'two.libsonnet').a }");
    writeFileSync(join(folder, 'two.libsonnet'), "// import 'nothing'\n(import 'one.libsonnet')");
    expect(await withFile("import 'one.libsonnet'")).toMatchInlineSnapshot(`
      "/tmp/one.libsonnet:1:6: the evaluation does not end, and files import each other: /tmp/one.libsonnet -> /tmp/two.libsonnet -> /tmp/one.libsonnet
        Move what both need to a file of its own, which both import."
    `);
    expect(await withFile('{ a: self.b, b: self.a }')).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:1:17: max stack frames exceeded.
        Look for a value or function that refers to itself."
    `);
    // What imports each other and needs only what is there has an end.
    writeFileSync(join(folder, 'two.libsonnet'), "{ a: 'x', whole:: import 'one.libsonnet' }");
    expect(await withFile("import 'one.libsonnet'")).toContain('task: missing');
  });

  it('does not exist', async () => {
    expect(await textOf({ file: 'configs/nope.jsonnet' })).toMatchInlineSnapshot(`
      "configs/nope.jsonnet: no such file
        Name a Jsonnet file; the shipped ones are in configs/."
    `);
    expect(await textOf({ file: 'configs/sft_s__rl_s' })).toContain('Did you mean configs/sft_s__rl_s.jsonnet?');
    expect(await textOf({ file: 'sft_s__rl_s.jsonnet' })).toContain('Did you mean configs/sft_s__rl_s.jsonnet?');
    expect(await textOf({ file: 'configs/sft_sc2stge.jsonnet' })).toContain(
      'Did you mean configs/sft_sc2stage.jsonnet?',
    );
    expect(await textOf({ file: 'configs/tiny_vq.jsonnet/x' })).toContain('Name a Jsonnet file');
    expect(await textOf({ ...base, overlays: ['tiny'] })).toMatchInlineSnapshot(`
      "tiny: no such file
        Did you mean configs/lib/tiny.libsonnet?"
    `);
  });

  it('is no object', async () => {
    expect(await withFile('[1, 2]')).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet: the file: evaluates to a list; allowed: an object
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('fails in its own assertion', async () => {
    expect(await withFile("{ a: 1, assert self.a > 1 : 'a is too small' }")).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet:1:29: a is too small
        Correct the file; editrl config show prints what a config evaluates to."
    `);
  });
});

describe('a config that does not validate', () => {
  it('names every problem at once, with the nearest known key', async () => {
    expect(
      await withSets(
        'optimizer.learning_rte=1',
        'learning_rate=3',
        'foo=1',
        'rollout.top_p=1.5',
        'rollout.top_k=0',
        'rollout.temperature=warm',
        'rollout.episodes_per_iteration=100',
        'run_name=a/b',
        'reward.mode=viescor',
        'optimizer.betas=[0.9]',
        'seed=1.5',
      ),
    ).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 12 problems
        (--set) run_name: found "a/b"; allowed: a name of letters, digits, "._-", at most 96 characters, never a path
        (--set) seed: found 1.5; allowed: an integer
        (--set) optimizer.betas: found [0.9]; allowed: a list of length >= 2
        (--set) optimizer.learning_rte: unknown key; did you mean optimizer.learning_rate?
        (--set) rollout.temperature: found "warm"; allowed: a number
        (--set) rollout.top_p: found 1.5; allowed: a number <= 1
        (--set) rollout.top_k: found 0; allowed: -1 or an integer >= 1
        (--set) reward.mode: found "viescor"; allowed: viescore, ground_score, sqrt(viescore_pqxground_score), jpeg_size, image_similarity, format_accuracy, word_sequence, exact_words, word_overlap, answer_judge, align_quality, logit_expectation, pairwise, ocr, ocr_confidence, clip, prompt_quality, remote, module; did you mean 'viescore'?
        (--set) learning_rate: a key of EARL's flat form; in this form: optimizer.learning_rate
        (--set) foo: unknown key; allowed: algorithm, base_exp_dir, checkpoint, data, environment, launch, num_iterations, optimizer, policy, reward, rollout, run_name, seed, task, track, validation
        (--set) rollout.episodes_per_iteration: found 100; allowed: a multiple of rollout.generations_per_sample (8), so that every group is whole
        (--set) rollout.episodes_per_iteration: found 100; allowed: a multiple of optimizer.per_device_batch_size (64), so that micro-batches have a fixed size
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('names the file and line where exactly one sets the key', async () => {
    const text = `local base = import '${process.cwd()}/configs/sft_s__rl_s.jsonnet';\nbase + {\n  optimiser: {},\n  reward+: { endpoint: 'embedded', timeout: 3 },\n}\n`;
    expect(await withFile(text)).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet: 2 problems
        (/tmp/mine.jsonnet:4) reward.timeout: unknown key; did you mean reward.timeout_s?
        (/tmp/mine.jsonnet:3) optimiser: unknown key; did you mean optimizer?
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('has no task, or a misspelt one', async () => {
    expect(await withFile('{}')).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet: task: missing; allowed: image_edit_tokens, image_tokenizer, image_autoencoder, text_answers, edit_response, video_actions, ip_adapter, prompt_enhance, text_to_image, image_text_encoder, image_editor, external
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets('task=image_edit_token', 'seed=-1')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 2 problems
        (--set) task: found 'image_edit_token'; allowed: image_edit_tokens, image_tokenizer, image_autoencoder, text_answers, edit_response, video_actions, ip_adapter, prompt_enhance, text_to_image, image_text_encoder, image_editor, external; did you mean 'image_edit_tokens'?
        (--set) seed: found -1; allowed: a number >= 0
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('asks for what this version cannot do', async () => {
    expect(await withSets('algorithm.type=ppo', 'policy.engine.type=vllm', 'environment.engine.dtype=float16'))
      .toMatchInlineSnapshot(`
        "configs/sft_s__rl_s.jsonnet: 3 problems
          (--set) algorithm.type: 'ppo' is not available in this version; available: grpo, sft
          (--set) policy.engine.type: 'vllm' is not available in this version; available: onnx
          (--set) environment.engine.dtype: 'float16' is not available in this version; available: float32
          editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
      `);
  });

  it('asks for a format that another one holds', async () => {
    expect(await withSets('policy.engine.dtype=bfloat16')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) policy.engine.dtype: 'bfloat16' is not available in this version; available: float32, float16 (float16 holds a bfloat16 checkpoint exactly between 2^-14 and 65504, and smaller numbers within 2^-25)
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('refers to models in ways that are not known', async () => {
    expect(
      await withSets('environment.model=3', 'policy.tokenizer={"hub":"x"}', 'policy.model={"run":"a","confg":"b"}'),
    ).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 4 problems
        (--set) policy.model.config: missing; allowed: a string
        (--set) policy.model.confg: unknown key; did you mean policy.model.config?
        (--set) policy.tokenizer.hub: found "x"; allowed: a Hub id such as "owner/name"
        (--set) environment.model: found 3; allowed: a local path, {hub, revision} or {run, config}
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('has no judge for GRPO', async () => {
    expect(await textOf({ file: base.file, env: {} })).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (configs/lib/earl.libsonnet:64) reward.endpoint: empty, but reward 'viescore' needs a judge: export APP__REWARD_FUNCTION_API_BASE=http://HOST:4877 or set it here; 'embedded' starts the rule judge of the tiny world
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets('reward.endpoint=judge:4877')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) reward.endpoint: found 'judge:4877'; allowed: an http(s) URL such as http://HOST:4877, a list of such URLs, or 'embedded'
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('gets no second problem from a rule about a value that is wrong by itself', async () => {
    expect(await withSets('reward.endpoint=3', 'rollout.episodes_per_iteration=many')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 2 problems
        (--set) rollout.episodes_per_iteration: found "many"; allowed: a number
        (--set) reward.endpoint: found 3; allowed: a URL such as http://HOST:4877, a list of such URLs, {node_file: 'FILE', port: 4877}, or 'embedded'
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('combines what cannot work together', async () => {
    const init =
      '{"hidden_size":90,"intermediate_size":256,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":3}';
    expect(
      await withSets(
        `policy.init=${init}`,
        'rollout.generations_per_sample=1',
        'rollout.episodes_per_iteration=96',
        'rollout.max_response_tokens=4096',
        'data.train=[{"path":"a","coefficient":2},{"path":"b"}]',
        'algorithm.train_tokens={"tokens":"text","cycle_steps":5,"steps":7}',
        'environment.model.run=sft_s__rl_s',
      ),
    ).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 8 problems
        (--set) rollout.generations_per_sample: found 1; allowed: 2 or more, because GRPO compares the answers of one prompt (those of others, too, with algorithm.advantage.scope 'batch')
        (--set) algorithm.train_tokens.steps: found 7; allowed: at most cycle_steps (5)
        (--set) rollout.episodes_per_iteration: found 96; allowed: a multiple of optimizer.per_device_batch_size (64), so that micro-batches have a fixed size
        (--set) data.train: 1 of 2 sources have a coefficient; allowed: all of them, or none (each is then upsampled to the largest)
        (--set) policy.init: found both policy.model and policy.init; set one of them to null: a checkpoint brings its own architecture
        (--set) policy.init.num_key_value_heads: found 3; allowed: a divisor of num_attention_heads (4)
        (--set) policy.init.hidden_size: found 90; allowed: a multiple of num_attention_heads (4), or set head_dim
        (--set) environment.model.run: found 'sft_s__rl_s', which is this run itself; allowed: another run
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('says how a learning rate falls that does not, or before it is warm', async () => {
    const steps = 'optimizer.decay_steps=20';
    expect(await withSets(steps)).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) optimizer.decay_steps: found 20 with optimizer.schedule 'constant', which never falls; allowed: null, or schedule 'linear' or 'cosine'
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets('optimizer.min_learning_rate_ratio=0.5')).toBe('loads');
    const falling = 'optimizer.schedule=linear';
    expect(await withSets(falling, steps, 'algorithm.warmup_steps=20')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) optimizer.decay_steps: found 20; allowed: more than algorithm.warmup_steps (20), which it includes, or null for all steps of the run
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets(falling, steps, 'algorithm.warmup_steps=19')).toBe('loads');
    expect(await withSets('optimizer.schedule=cosin', steps, 'algorithm.warmup_steps=20')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) optimizer.schedule: found "cosin"; allowed: constant, linear, cosine; did you mean 'cosine'?
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    const outside = ['optimizer.decay_steps=0', 'optimizer.min_learning_rate_ratio=1.5'];
    expect(await withSets(falling, ...outside)).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 2 problems
        (--set) optimizer.decay_steps: found 0; allowed: a number >= 1
        (--set) optimizer.min_learning_rate_ratio: found 1.5; allowed: a number <= 1
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('learns in ways that come to nothing', async () => {
    expect(
      await withSets(
        'algorithm.minibatches=5',
        'validation.weights=average',
        'algorithm.advantage.per_term=true',
        'algorithm.advantage.scope=batch',
        'reward.terms=[{"name":"viescore","weight":1}]',
      ),
    ).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 3 problems
        (--set) algorithm.minibatches: found 5; allowed: a divisor of the 32 prompts of an iteration (rollout.episodes_per_iteration / rollout.generations_per_sample)
        (--set) validation.weights: found 'average' without optimizer.ema_decay, which makes the averages; allowed: 'current' or null, or set it
        (--set) algorithm.advantage.per_term: found true with algorithm.advantage.scope 'batch'; allowed: only with 'group', which each term is normalised within
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    const supervised = { file: 'configs/sft_s.jsonnet', overlays: base.overlays, env: {} };
    expect(await textOf({ ...supervised, sets: ['validation.weights=average', 'optimizer.ema_decay=0.9'] })).toBe(
      'loads',
    );
    expect(await withSets('algorithm.kl_estimator=k2', 'algorithm.minibatches=4')).toBe('loads');
  });

  it('has options about ratios that are all 1, or that contradict each other', async () => {
    expect(await withSets('algorithm.clip_range_high=0.3', 'algorithm.surrogate=cispo', 'algorithm.ratio=answer'))
      .toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 3 problems
        (--set) algorithm.clip_range_high: found 0.3 with one optimizer step an iteration (inner_epochs 1, minibatches 1), in which every ratio is 1; allowed: null, or more steps
        (--set) algorithm.surrogate: found cispo with one optimizer step an iteration (inner_epochs 1, minibatches 1), in which every ratio is 1; allowed: ppo, or more steps
        (--set) algorithm.ratio: found answer with one optimizer step an iteration (inner_epochs 1, minibatches 1), in which every ratio is 1; allowed: token, or more steps
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    const steps = 'algorithm.minibatches=4';
    expect(await withSets(steps, 'algorithm.surrogate=cispo')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: algorithm.clip_range_high: found null with surrogate 'cispo' and clip_range null; allowed: a number above 0, which 1 is added to for the largest ratio
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets(steps, 'algorithm.clip_range_high=0.3')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: algorithm.clip_range: found null with clip_range_high 0.3; allowed: a number above 0, the range below 1
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets('rollout.refill={"rounds":2}', 'algorithm.advantage.scope=batch')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) rollout.refill: found with algorithm.advantage.scope 'batch', in which a group whose rewards are all equal teaches too; allowed: null, or scope 'group'
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets('rollout.refill={"rounds":0}')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) rollout.refill.rounds: found 0; allowed: a number >= 1
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    for (const sets of [
      ['rollout.refill={"rounds":2}'],
      [steps, 'algorithm.surrogate=cispo', 'algorithm.clip_range_high=4'],
      [steps, 'algorithm.clip_range=0.2', 'algorithm.clip_range_high=0.28', 'algorithm.aggregation=dapo'],
      [steps, 'algorithm.ratio=answer', 'algorithm.clip_range=3e-4', 'algorithm.aggregation=answer'],
    ]) {
      expect(await withSets(...sets)).toBe('loads');
    }
  });

  it('has neither a start nor an architecture: it is a base for others, and cannot run', async () => {
    const { settings } = await loadEvaluated({ ...base, sets: ['policy.model=null'] });
    expect(cannotRunYet(settings)).toMatchInlineSnapshot(`
      [
        "policy.model is null: set it to a local path, {hub, revision} or {run, config} (EARL's flat form: model_path), or set policy.init to start from random weights",
      ]
    `);
  });

  it('has patches that do not tile the image', async () => {
    expect(await textOf({ file: 'configs/tiny_vq.jsonnet', sets: ['environment.init.patch=5'], env: {} }))
      .toMatchInlineSnapshot(`
        "configs/tiny_vq.jsonnet: (--set) environment.init.patch: found 5; allowed: a divisor of the image's side (32 pixels)
          editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
      `);
  });

  it('is set in ways that do not fit', async () => {
    expect(await withSets('data.train.5.path=x', 'run_name.x=1')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 2 problems
        (--set) data.train.5.path: cannot be set: data.train is [{"path":"data/tiny/s/prompts/list/tokenized_datalist.json"}]; set data.train as a whole
        (--set) run_name.x: cannot be set: run_name is "sft_s__rl_s"; set run_name as a whole
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets('nothing')).toMatchInlineSnapshot(`
      "--set nothing: found no key=value
        Write it as --set optimizer.learning_rate=1e-5."
    `);
  });

  it('is set in a form that is no JSON, or other than was meant', async () => {
    expect(await withSets("data.train=[{path: 'x'}]")).toMatchInlineSnapshot(`
      "--set data.train=[{path: 'x'}]: found a list or an object that is no JSON
        Write JSON, with quotes around keys: --set 'data.train={"key": "value"}'; Jsonnet stands in files (--with)."
    `);
    expect(await withSets('run_name=123', 'data.dir=true', 'reward.endpoint=null')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 3 problems
        (--set) run_name: found 123; allowed: a string (--set takes JSON: 'run_name="123"' is one)
        (--set) data.dir: found true; allowed: a string (--set takes JSON: 'data.dir="true"' is one)
        (--set) reward.endpoint: found null; allowed: a URL such as http://HOST:4877, a list of such URLs, {node_file: 'FILE', port: 4877}, or 'embedded'
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });

  it('has keys that every object inherits', async () => {
    expect(await withSets('__proto__.x=1')).toMatchInlineSnapshot(`"--set __proto__.x=1: '__proto__' cannot be a key"`);
    expect(await withSets('policy.__proto__=1')).toMatchInlineSnapshot(
      `"--set policy.__proto__=1: '__proto__' cannot be a key"`,
    );
    expect(await withSets('constructor.x=1', 'policy.toString.y=1', 'task.valueOf=1')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: 3 problems
        (--set) task.valueOf: cannot be set: task is "image_edit_tokens"; set task as a whole
        policy.toString: unknown key; allowed: assistant_prefill, chat_words, emu3_use_logit_processor, end_after_image, engine, image_header, init, lora, model, model_context_size, separate_language_and_vision_vocabs, tokenizer, trainer
        constructor: unknown key; allowed: algorithm, base_exp_dir, checkpoint, data, environment, launch, num_iterations, optimizer, policy, reward, rollout, run_name, seed, task, track, validation
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    const keys = ['__proto__', 'constructor', 'toString'].map((key) => `['${key}']: { x: 1 }`).join(', ');
    expect(await withFile(`{ task: 'image_tokenizer', ${keys}, data: { ${keys} } }`)).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet: 12 problems
        run_name: missing; allowed: a string
        num_iterations: missing; allowed: a number
        optimizer: missing; allowed: an object
        data.train: missing; allowed: a list
        data.validation: missing; allowed: a list
        (/tmp/mine.jsonnet) data.__proto__: unknown key; allowed: dir, format, tiny, train, validation
        (/tmp/mine.jsonnet) data.constructor: unknown key; allowed: dir, format, tiny, train, validation
        (/tmp/mine.jsonnet) data.toString: unknown key; allowed: dir, format, tiny, train, validation
        environment: missing; allowed: an object
        (/tmp/mine.jsonnet) __proto__: unknown key; allowed: algorithm, base_exp_dir, checkpoint, data, environment, launch, num_iterations, optimizer, run_name, seed, task, track, validation
        (/tmp/mine.jsonnet) constructor: unknown key; allowed: algorithm, base_exp_dir, checkpoint, data, environment, launch, num_iterations, optimizer, run_name, seed, task, track, validation
        (/tmp/mine.jsonnet) toString: unknown key; allowed: algorithm, base_exp_dir, checkpoint, data, environment, launch, num_iterations, optimizer, run_name, seed, task, track, validation
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets('reward.terms=[{"name":"constructor","weight":1}]')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) reward.terms.0.name: found "constructor"; allowed: viescore, ground_score, sqrt(viescore_pqxground_score), jpeg_size, image_similarity, format_accuracy, word_sequence, exact_words, word_overlap, answer_judge, align_quality, logit_expectation, pairwise, ocr, ocr_confidence, clip, prompt_quality, remote, module
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
    expect(await withSets('task=constructor')).toMatchInlineSnapshot(`
      "configs/sft_s__rl_s.jsonnet: (--set) task: found 'constructor'; allowed: image_edit_tokens, image_tokenizer, image_autoencoder, text_answers, edit_response, video_actions, ip_adapter, prompt_enhance, text_to_image, image_text_encoder, image_editor, external
        editrl config schema lists every key with its meaning; editrl config show --origin prints what set each value."
    `);
  });
});

describe('Jsonnet that is newer than the one that is built in', () => {
  it.each([
    [
      '{ num_iterations: 1_000 }',
      'editrl has Jsonnet 0.20.0 built in, which has no digit separators. Write 1000 for 1_000.',
    ],
    ['[1_0_0,\n2_0]', 'Write 100 for 1_0_0.'],
    ["{ a: std.trim(' x ') }", 'editrl has Jsonnet 0.20.0 built in, which has no std.trim.'],
    ['{ a: std.flattenDeepArray([[1]]) }', 'which has no std.flattenDeepArray.'],
    ['{ a: |||-\n  x\n|||\n}', 'which has no |||-.'],
    ['function(seed) { seed: seed }', "Give seed a default, or read it with std.extVar('APP__SEED')."],
    ['{ a: { b: 1 }.c }', 'Correct the file; editrl config show'],
    ['{ a: 1 b: 2 }', 'Correct the file. editrl has Jsonnet 0.20.0 built in.'],
  ])('is named: %s', async (text, advice) => {
    expect(await withFile(text)).toContain(advice);
  });
});

describe('a section that is replaced', () => {
  const merged = (own: string): Promise<string> =>
    withFile(`(import '${process.cwd()}/configs/sft_s__rl_s.jsonnet') + {\n${own}\n}`);

  it('is named by what is missing then', async () => {
    expect(await merged('  algorithm: { kl_coeff: 0 },')).toContain(
      '/tmp/mine.jsonnet:2 replaces all of algorithm: write `algorithm+:` there to merge into it',
    );
    expect(await merged('  optimizer: { weight_decay: 0 },')).toContain('write `optimizer+:` there');
    expect(await merged("  policy+: { model: { hub: 'a/b' }, model_context_size: 'x' },")).not.toContain('+:`');
  });
});

describe('an overlay of another recipe', () => {
  it.each([
    ['edit_response', 'ip_adapter_tiny', 'is for ip_adapter, and the config is for edit_response'],
    ['ip_adapter', 'video_tiny', 'is for video_actions, and the config is for ip_adapter'],
    ['text_plain', 'tiny', 'is for image_edit_tokens, and the config is for text_answers'],
    ['video_actions', 'edit_tiny', 'The overlay needs a config with environment. It may be for another recipe'],
  ])('is named as the cause: %s with %s', async (config, overlay, said) => {
    const overlays = [`configs/lib/${overlay}.libsonnet`];
    expect(await textOf({ file: `configs/${config}.jsonnet`, overlays, env: {} })).toContain(said);
  });
});
