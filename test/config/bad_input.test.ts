import { writeFileSync } from 'node:fs';
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

function withSets(...sets: readonly string[]): Promise<string> {
  return textOf({ ...base, sets });
}

function withFile(text: string, name = 'mine.jsonnet'): Promise<string> {
  const file = join(folder, name);
  writeFileSync(file, text);
  return textOf({ file, env: {} });
}

describe('a config that does not evaluate', () => {
  it.each([
    [
      'malformed',
      "{\n  seed: 1,\n  run_name: 'x'\n  task: 2,\n}\n",
      ':4:3: expected a comma',
      'Correct the file. editrl',
    ],
    ['computed over several lines', "{\n  base: import ('a'\n    + '.x'),\n}\n", ':2:16: computed imports', 'Correct'],
    [
      'an error of its own',
      "{\n  a: {\n    b: error ('too long: ' +\n      'two\\nlines'),\n  },\n}\n",
      ':3:8: too long: two\nlines\n',
      'config show',
    ],
    ['unterminated', "{\n  a: std.extVar('APP__DATA_DIR')',\n}\n", ':2:33: unterminated string', 'Correct the file.'],
    ['refused by the library', "{\n  seed: std.parseInt('x'),\n}\n", ':2:9: x is not a base 10', 'Correct the file.'],
    [
      'an unset variable',
      "{\n  a: std.extVar('APP__BASE_EXP_DR'),\n}\n",
      ':2:6: undefined external',
      'export APP__BASE_EXP_DR=… (or did you mean APP__BASE_EXP_DIR?)',
    ],
    ['another variable', "{ a: std.extVar('HOME') }\n", 'undefined external variable: HOME', 'Set it with -V HOME='],
    [
      'a lost import',
      "{ a: 1 } + import 'lib/tiny.libsonet'",
      `:1:12: couldn't open import "lib/tiny.libsonet"`,
      '--jpath or EDITRL_JPATH',
    ],
    ['a function', '{\n  seed: function(x) x,\n}\n', ":2:9: couldn't manifest function", 'Call the function'],
    ['without end', '{ a: self.b, b: self.a }', ':1:17: max stack frames', 'refers to itself'],
    ['a list', '[1, 2]', 'the file: evaluates to a list; allowed: an object', ''],
    ['asserting', "{ a: 1, assert self.a > 1 : 'a is too small' }", ':1:29: a is too small', 'Correct the file.'],
    [
      '1_000',
      '{ num_iterations: 1_000 }',
      '',
      'editrl has Jsonnet 0.20.0 built in, which has no digit separators. Write 1000 for 1_000.',
    ],
    ['std.trim', "{ a: std.trim(' x ') }", '', 'which has no std.trim.'],
    ['|||-', '{ a: |||-\n  x\n|||\n}', '', 'which has no |||-.'],
    ['with arguments', 'function(seed) { seed: seed }', '', "read it with std.extVar('APP__SEED')."],
  ])('is %s', async (_, text, found, next) => {
    const said = await withFile(text);
    expect(said).toMatch(/^\/tmp\/mine\.jsonnet/);
    expect(said).toContain(found);
    expect(said).toContain(next);
  });

  it('imports what imports it', async () => {
    writeFileSync(join(folder, 'one.libsonnet'), "{ a: (import 'two.libsonnet').a }");
    writeFileSync(join(folder, 'two.libsonnet'), "// import 'nothing'\n(import 'one.libsonnet')");
    expect(await withFile("import 'one.libsonnet'")).toContain(
      'files import each other: /tmp/one.libsonnet -> /tmp/two.libsonnet -> /tmp/one.libsonnet',
    );
    // What imports each other and needs only what is there has an end.
    writeFileSync(join(folder, 'two.libsonnet'), "{ a: 'x', whole:: import 'one.libsonnet' }");
    expect(await withFile("import 'one.libsonnet'")).toContain('task: missing');
  });

  it.each([
    ['configs/nope.jsonnet', 'configs/nope.jsonnet: no such file\n  Name a Jsonnet file'],
    ['configs/sft_s__rl_s', 'Did you mean configs/sft_s__rl_s.jsonnet?'],
    ['sft_s__rl_s.jsonnet', 'Did you mean configs/sft_s__rl_s.jsonnet?'],
    ['configs/sft_sc2stge.jsonnet', 'Did you mean configs/sft_sc2stage.jsonnet?'],
    ['tiny', 'Did you mean configs/lib/tiny.libsonnet?'],
    ['configs/tiny_vq.jsonnet/x', 'Name a Jsonnet file'],
  ])('does not exist: %s', async (file, said) => {
    expect(await textOf({ file })).toContain(said);
  });
});

/** Sets of the tiny RL run, and the lines of the error after its head: the whole number of them, each with a key and what is said of it. */
const wrong: readonly (readonly [sets: readonly string[], lines: readonly string[]])[] = [
  [
    [
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
    ],
    [
      'run_name: found "a/b"; allowed: a name of letters',
      'seed: found 1.5; allowed: an integer',
      'optimizer.betas: found [0.9]; allowed: a list of length >= 2',
      'optimizer.learning_rte: unknown key; did you mean optimizer.learning_rate?',
      'rollout.temperature: found "warm"; allowed: a number',
      'rollout.top_p: found 1.5; allowed: a number <= 1',
      'rollout.top_k: found 0; allowed: -1 or an integer >= 1',
      'reward.mode: found "viescor"; allowed: viescore, ',
      "learning_rate: a key of EARL's flat form; in this form: optimizer.learning_rate",
      'foo: unknown key; allowed: algorithm, ',
      'rollout.episodes_per_iteration: found 100; allowed: a multiple of rollout.generations_per_sample (8)',
      'rollout.episodes_per_iteration: found 100; allowed: a multiple of optimizer.per_device_batch_size (64)',
    ],
  ],
  [
    ['task=image_edit_token', 'seed=-1'],
    ["task: found 'image_edit_token'; allowed: ", 'seed: found -1; allowed: a number >= 0'],
  ],
  [
    ['algorithm.type=ppo', 'policy.engine.dtype=bfloat16'],
    [
      'algorithm.type: found "ppo"; allowed: grpo, sft',
      'policy.engine.dtype: found "bfloat16"; allowed: float32, float16',
    ],
  ],
  [
    ['environment.model=3', 'policy.tokenizer={"hub":"x"}', 'policy.model={"run":"a","confg":"b"}'],
    [
      'policy.model.config: missing; allowed: a string',
      'policy.model.confg: unknown key; did you mean policy.model.config?',
      'policy.tokenizer.hub: found "x"; allowed: a Hub id',
      'environment.model: found 3; allowed: a local path, {hub, revision} or {run, config}',
    ],
  ],
  [['reward.endpoint=judge:4877'], ["reward.endpoint: found 'judge:4877'; allowed: an http(s) URL"]],
  [
    [
      'algorithm.minibatches=5',
      'validation.weights=average',
      'algorithm.advantage.scope=batch',
      'reward.terms=[{"name":"viescore","weight":1}]',
    ],
    [
      'algorithm.minibatches: found 5; allowed: a divisor of the 32 prompts',
      "validation.weights: found 'average' without optimizer.ema_decay",
    ],
  ],
  [
    ['algorithm.clip_range_high=0.3', 'algorithm.surrogate=cispo', 'algorithm.ratio=answer'],
    [
      'algorithm.clip_range_high: found 0.3 with one optimizer step',
      "algorithm.surrogate: found 'cispo' with one optimizer step",
      "algorithm.ratio: found 'answer' with one optimizer step",
    ],
  ],
  [
    ['rollout.refill={"rounds":2}', 'algorithm.advantage.scope=batch'],
    ["rollout.refill: found with algorithm.advantage.scope 'batch'"],
  ],
  [
    ['data.train.5.path=x', 'run_name.x=1'],
    [
      'data.train.5.path: cannot be set: data.train is [{"path"',
      'run_name.x: cannot be set: run_name is "sft_s__rl_s"; set run_name as a whole',
    ],
  ],
  [
    ['run_name=123', 'data.dir=true', 'reward.endpoint=null'],
    [
      `run_name: found 123; allowed: a string (--set takes JSON: 'run_name="123"' is one)`,
      'data.dir: found true; allowed: a string (--set takes JSON',
      'reward.endpoint: found null; allowed: a URL',
    ],
  ],
  [
    ['reward.terms=[{"name":"constructor","weight":1}]'],
    ['reward.terms.0.name: found "constructor"; allowed: viescore, '],
  ],
];

describe('a config that does not validate', () => {
  it.each(wrong)('names every problem at once: %j', async (sets, lines) => {
    const said = (await withSets(...sets)).split('\n').slice(0, -1);
    const [head, ...rest] = said;
    const found = lines.length === 1 ? [head.slice(head.indexOf('(--set)'))] : rest;
    expect(head).toMatch(/^configs\/sft_s__rl_s\.jsonnet: /);
    expect(found).toHaveLength(lines.length);
    lines.forEach((line, at) => expect(found[at].trim().startsWith(`(--set) ${line}`), found[at]).toBe(true));
  });

  it.each([
    [
      ['algorithm.minibatches=4', 'algorithm.surrogate=cispo'],
      "algorithm.clip_range_high: found null with surrogate 'cispo'",
    ],
    [
      ['algorithm.minibatches=4', 'algorithm.clip_range_high=0.3'],
      'algorithm.clip_range: found null with clip_range_high 0.3',
    ],
    [['__proto__.x=1'], "'__proto__' cannot be a key"],
    [['policy.__proto__=1'], "'__proto__' cannot be a key"],
    [['nothing'], "--set nothing: found no '='"],
    [["data.train=[{path: 'x'}]"], 'a list or an object that is not valid JSON'],
  ])('%j', async (sets, words) => {
    expect(await withSets(...sets)).toContain(words);
  });

  it.each([
    [['optimizer.min_learning_rate_ratio=0.5']],
    [['optimizer.schedule=linear', 'algorithm.minibatches=4']],
    [['rollout.refill={"rounds":2}']],
    [['algorithm.minibatches=4', 'algorithm.surrogate=cispo', 'algorithm.clip_range_high=4']],
    [
      [
        'algorithm.minibatches=4',
        'algorithm.clip_range=0.2',
        'algorithm.clip_range_high=0.28',
        'algorithm.aggregation=dapo',
      ],
    ],
    [
      [
        'algorithm.minibatches=4',
        'algorithm.ratio=answer',
        'algorithm.clip_range=3e-4',
        'algorithm.aggregation=answer',
      ],
    ],
  ])('takes %j', async (sets) => {
    expect(await withSets(...sets)).toBe('loads');
  });

  it('is named after its file without a run_name', async () => {
    const file = join(folder, 'unnamed.jsonnet');
    writeFileSync(file, `(import '${process.cwd()}/configs/tiny_vq.jsonnet') + { run_name:: null }`);
    expect((await loadEvaluated({ file, env: {} })).settings.run_name).toBe('unnamed');
  });

  it('has an overlay of another recipe, which is named', async () => {
    const overlays = ['configs/lib/video_tiny.libsonnet'];
    expect(await textOf({ file: 'configs/text_start.jsonnet', overlays, env: {} })).toContain(
      'configs/lib/video_tiny.libsonnet may belong to another recipe',
    );
  });

  it('names the file and line that set the key', async () => {
    const text = `local base = import '${process.cwd()}/configs/sft_s__rl_s.jsonnet';\nbase + {\n  optimiser: {},\n  reward+: { endpoint: 'embedded', timeout: 3 },\n}\n`;
    expect(await withFile(text)).toMatchInlineSnapshot(`
      "/tmp/mine.jsonnet: 2 problems
        (/tmp/mine.jsonnet:4) reward.timeout: unknown key; did you mean reward.timeout_s?
        (/tmp/mine.jsonnet:3) optimiser: unknown key; did you mean optimizer?
        editrl config schema lists every key with its meaning; editrl config show --origin prints the origin of each value."
    `);
  });

  it('has no judge for GRPO, no task, or patches that do not tile the image', async () => {
    expect(await textOf({ file: base.file, env: {} })).toMatch(
      /^configs\/sft_s__rl_s\.jsonnet: \(configs\/lib\/earl\.libsonnet:\d+\) reward\.endpoint: empty, but reward 'viescore' needs a judge/,
    );
    expect(await withFile('{}')).toContain('task: missing; allowed: image_edit_tokens, ');
    expect(await textOf({ file: 'configs/tiny_vq.jsonnet', sets: ['environment.init.patch=5'], env: {} })).toContain(
      "environment.init.patch: found 5; allowed: a divisor of the image's side (32 pixels)",
    );
  });

  it('has neither a start nor an architecture: it is a base for others, and cannot run', async () => {
    const { settings } = await loadEvaluated({ ...base, sets: ['policy.model=null'] });
    expect(cannotRunYet(settings)).toEqual([expect.stringContaining('policy.model is null')]);
  });

  it('has keys that every object inherits', async () => {
    const said = await withSets('constructor.x=1', 'policy.toString.y=1', 'task.valueOf=1');
    expect(said).toContain('task.valueOf: cannot be set: task is "image_edit_tokens"');
    expect(said).toContain('  policy.toString: unknown key; ');
    expect(said).toContain('  constructor: unknown key; ');
    const keys = ['__proto__', 'constructor', 'toString'];
    const fields = keys.map((key) => `['${key}']: { x: 1 }`).join(', ');
    const inFile = await withFile(`{ task: 'image_tokenizer', ${fields}, data: { ${fields} } }`);
    for (const key of keys) {
      expect(inFile).toContain(`(/tmp/mine.jsonnet) data.${key}: unknown key; allowed: dir, `);
      expect(inFile).toContain(`(/tmp/mine.jsonnet) ${key}: unknown key; allowed: algorithm, `);
    }
    for (const key of ['num_iterations', 'optimizer.learning_rate', 'data.train']) {
      expect(inFile).toContain(`${key}: missing; `);
    }
  });
});

describe('a section that is replaced', () => {
  const merged = (own: string): Promise<string> =>
    withFile(`(import '${process.cwd()}/configs/sft_s__rl_s.jsonnet') + {\n${own}\n}`);

  it('is named by what is missing then', async () => {
    expect(await merged('  algorithm: { kl_coeff: 0 },')).toContain(
      '/tmp/mine.jsonnet:2 replaces all of algorithm, write `algorithm+:` there to merge into it',
    );
    expect(await merged("  policy+: { model: { hub: 'a/b' }, model_context_size: 'x' },")).not.toContain('+:`');
  });
});

it('an overlay that reads what a config does not have is reported to be for another recipe', async () => {
  const said = await textOf({
    file: 'configs/video_actions.jsonnet',
    overlays: ['configs/lib/edit_tiny.libsonnet'],
    env: {},
  });
  expect(said).toContain('The overlay needs a config with environment. It may belong to another recipe');
});
