import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it, vi } from 'vitest';
import { parse } from 'yaml';
import { recipeNamed } from '../../../../src/config/recipes.js';
import { recipes } from '../../../../src/recipes/settings.js';
import { writeRecord } from '../../../../src/run/record.js';
import { loaderOf, writeCard } from '../../../../src/run/track/card/card.js';
import { testFolders } from '../../../support/folder.js';
import { FakeRun } from '../run_directory.js';

const folder = testFolders('card');

interface Written {
  readonly head: Record<string, unknown>;
  readonly body: string;
}

/** Writes a card into a folder that holds these files. */
function written(
  run: FakeRun,
  files: Readonly<Record<string, object>> = { 'config.json': { model_type: 'qwen2' } },
  format: 'adapter' | 'merged' | 'checkpoint' = 'adapter_config.json' in files ? 'adapter' : 'merged',
): Written {
  const out = folder();
  for (const [name, content] of Object.entries(files)) writeFileSync(join(out, name), JSON.stringify(content));
  writeCard(out, { paths: run.paths, checkpoint: out, iteration: 5, format, place: 'this folder' }, {});
  const [, head, body] = /^---\n([\s\S]*?)---\n([\s\S]*)$/.exec(readFileSync(join(out, 'README.md'), 'utf8')) ?? [];
  return { head: parse(head) as Record<string, unknown>, body };
}

/** A folder of a model with a card. */
function modelWith(card: string): string {
  const model = folder();
  writeFileSync(join(model, 'README.md'), card);
  return model;
}

const from = (model: unknown): Record<string, unknown> => ({ policy: { model } });

it('a card has the settings of its iteration, and those that changed on the way to it', () => {
  const run = new FakeRun(folder(), 'run', { algorithm: { kl_coeff: 0.5 }, seed: 9 });
  run.iterations(1, 8);
  const change = (iteration: number, key: string, before: unknown, after: unknown) => ({
    ...run.record.attempts[0],
    ...{ from_iteration: iteration, allowed_changes: [{ key, before, after }] },
  });
  const attempts = [run.record.attempts[0], change(3, 'algorithm.kl_coeff', 0.1, 0.5), change(7, 'seed', 3, 9)];
  writeRecord(run.paths, { ...run.record, attempts });
  const { body } = written(run);
  expect(body).toContain(
    '- Settings changed during training:\n  - `algorithm.kl_coeff: 0.1 -> 0.5 from iteration 4 on`',
  );
  expect(body).not.toContain('seed: 3');
});

describe('the head of a card', () => {
  it('has the held-out results in the form of a model index, with errors and what they were before', () => {
    const run = new FakeRun(folder(), 'run', {
      ...{ algorithm: { type: 'grpo' }, reward: { mode: 'viescore', model: 'judge' } },
      data: { dir: '/data', validation: [{ path: '/data/edits/odd.jsonl' }, { path: '/elsewhere/plain.jsonl' }] },
    });
    const of = (value: number, stderr: number) => ({
      'validation/sampled/mean': value,
      'validation/sampled/stderr': stderr,
      'validation/greedy/mean': NaN,
    });
    run.iteration(0, of(3, 0.25));
    run.iteration(5, { ...of(4.5, 0.125), 'validation/loss': 0.5 });
    run.iteration(10, of(9, 1));
    const { head, body } = written(run);
    expect(head).toEqual({
      library_name: 'transformers',
      pipeline_tag: 'text-generation',
      tags: ['editrl', 'text_answers', 'reinforcement-learning', 'grpo'],
    });
    expect(body).toContain('- Reward: viescore, 0 to 10; the judge is `judge`.');
    expect(body).toContain('| reward viescore, 0 to 10, sampled | 3.000 ± 0.250 | 4.500 ± 0.125 | +1.500 |');
  });

  it.each(Object.keys(recipes).filter((name) => name !== 'external'))(
    'of %s names what the model does, or nothing',
    (task) => {
      const recipe = recipeNamed(task);
      const { head, body } = written(new FakeRun(folder(), 'run', { task }));
      expect(head['pipeline_tag'] ?? null).toBe(recipe?.trainer === 'this program' ? recipe.pipeline : 'unknown');
      expect(body).toMatch(
        /^In editrl, a config of the recipe `\w+` names it at `[\w.[\]]+`: the path of this folder\.$/m,
      );
    },
  );
});

describe('the licence on a card', () => {
  it('is the one of the model that the run started from, with its own name and address', () => {
    const model = modelWith('---\nlicense: other\nlicense_name: qwen\nlicense_link: https://example.org/l\n---\n# M\n');
    const { head, body } = written(new FakeRun(folder(), 'run', from(model)));
    expect(head).toMatchObject({ license: 'other', license_name: 'qwen', license_link: 'https://example.org/l' });
    expect(body).toContain('- License: `other` (qwen), like the base model.');
  });

  it('comes through the runs that the run started from, with the model of the Hub on their first card', () => {
    const base = folder();
    const model = modelWith('---\nlicense: apache-2.0\nbase_model: them/base\n---\n');
    new FakeRun(base, 'first', from(model));
    new FakeRun(base, 'second', from({ run: 'first', config: 'first.jsonnet' }));
    const { head, body } = written(new FakeRun(base, 'third', from({ run: 'second', config: 'second.jsonnet' })));
    expect(head).toMatchObject({ license: 'apache-2.0', base_model: 'them/base', base_model_relation: 'finetune' });
    expect(body).toContain('- Initialized from the run `second`, which derives from `them/base`.');
  });

  it('is read in the cache of the Hub, at the commit that the run began with', () => {
    const cache = folder();
    vi.stubEnv('HF_HUB_CACHE', cache);
    const commit = 'a'.repeat(40);
    const snapshot = join(cache, 'models--them--base', 'snapshots', commit);
    mkdirSync(snapshot, { recursive: true });
    writeFileSync(join(snapshot, 'README.md'), '---\r\nlicense:\r\n- mit\r\n- apache-2.0\r\n---\r\n');
    const run = new FakeRun(folder(), 'run', from({ hub: 'them/base', revision: 'main' }));
    writeFileSync(run.paths.record, JSON.stringify({ ...run.record, models: { 'them/base@main': commit } }));
    expect(written(run).head).toMatchObject({ license: ['mit', 'apache-2.0'], base_model: 'them/base' });
    vi.unstubAllEnvs();
  });

  it.each([
    ['of a model without a card', from('/nowhere/model')],
    ['of a run that is gone', from({ run: 'gone', config: 'gone.jsonnet' })],
    ['of a run that names itself', from({ run: 'run', config: 'run.jsonnet' })],
    ['of a model of the Hub that is not in the cache', from({ hub: 'them/never-fetched', revision: 'main' })],
    ['of random weights', from(null)],
    ['of a card whose head is not YAML', from(modelWith('---\nlicense: [mit\n: {\n---\n'))],
    ['of a card whose licence is a number', from(modelWith('---\nlicense: 3\n---\n'))],
  ])('%s is left out, and the body says so', (_, settings) => {
    const { head, body } = written(new FakeRun(folder(), 'run', settings));
    expect(head).not.toHaveProperty('license');
    expect(body).toContain('Set `license` above before you publish the model.');
  });
});

describe('how a card reports that an adapter is loaded', () => {
  const adapter = (base: string) => ({
    'adapter_config.json': { peft_type: 'LORA', task_type: 'CAUSAL_LM', base_model_name_or_path: base },
  });

  it('over a model of the Hub', () => {
    const { head, body } = written(
      new FakeRun(folder(), 'run', from({ hub: 'them/base', revision: 'main' })),
      adapter('them/base'),
    );
    expect(head).toMatchObject({ library_name: 'peft', base_model: 'them/base', base_model_relation: 'adapter' });
    expect(body).toContain('base = AutoModelForCausalLM.from_pretrained("them/base")\n');
    expect(body).toContain('model = PeftModel.from_pretrained(base, ".")\n');
  });

  it("over a folder, by the folder's path", () => {
    const model = modelWith('---\nbase_model: them/base\n---\n');
    const { head, body } = written(new FakeRun(folder(), 'run', from(model)), adapter(model));
    // Loaded over the Hub's model it would be another one.
    expect(head).not.toHaveProperty('base_model');
    expect(body).toContain(
      `# The folder of the base model on the training machine. Replace it with your copy.\nbase = AutoModelForCausalLM.from_pretrained(${JSON.stringify(model)})\n`,
    );
  });

  it('over a run, whose export is named', () => {
    const run = new FakeRun(folder(), 'run', from({ run: 'start', config: 'start.jsonnet' }));
    const { body } = written(run, adapter('/runs/start/checkpoints/000080'));
    expect(body).toContain(
      '# BASE is the folder of the model that the adapter was trained on: create it with `editrl export start --format merged --out BASE`.\nbase = AutoModelForCausalLM.from_pretrained("BASE")\n',
    );
    expect(body).not.toContain('/runs/start');
  });
});

it('explains how diffusers loads LoRA of a transformer', () => {
  const model = folder();
  mkdirSync(model, { recursive: true });
  writeFileSync(join(model, 'config.json'), JSON.stringify({ _class_name: 'FluxTransformer2DModel' }));
  const description = { peft_type: 'LORA', base_model_name_or_path: model, target_modules: ['x'] };
  const { head, body } = written(new FakeRun(folder(), 'run', from(model)), { 'adapter_config.json': description });
  expect(head).toMatchObject({ library_name: 'diffusers' });
  expect(body).toContain('from diffusers import DiffusionPipeline\n');
  expect(body).toContain('pipe.load_lora_weights(".")\n');
});

describe('the library that loads files', () => {
  const lora = { peft_type: 'LORA', task_type: null };
  const flow = { _class_name: 'QwenImageTransformer2DModel' };
  it.each([
    [
      'a language model',
      { format: 'merged', config: { model_type: 'qwen2' }, adapter: null },
      'transformers',
      'AutoModelForCausalLM',
    ],
    [
      'a model that sees',
      { format: 'merged', config: { vision_config: {} }, adapter: null },
      'transformers',
      'AutoModelForImageTextToText',
    ],
    [
      'a CLIP',
      { format: 'merged', config: { model_type: 'clip', vision_config: {} }, adapter: null },
      'transformers',
      'AutoModel',
    ],
    [
      'an autoencoder',
      { format: 'checkpoint', config: { _class_name: 'AutoencoderKL' }, adapter: null },
      'diffusers',
      'AutoencoderKL',
    ],
    [
      'a flow transformer',
      { format: 'checkpoint', config: flow, adapter: null },
      'diffusers',
      'QwenImageTransformer2DModel',
    ],
    [
      'a flow transformer with merged LoRA',
      { format: 'merged', config: flow, adapter: null },
      'diffusers',
      'QwenImageTransformer2DModel',
    ],
    [
      'a flow transformer with an IP-Adapter',
      { format: 'checkpoint', config: { ...flow, ip_adapter: {} }, adapter: null },
      'editrl',
      null,
    ],
    [
      'one that predicts samples',
      { format: 'checkpoint', config: { ...flow, prediction: 'sample' }, adapter: null },
      'editrl',
      null,
    ],
    ['an image tokenizer', { format: 'checkpoint', config: { codebook_size: 64 }, adapter: null }, 'editrl', null],
    [
      'LoRA of a flow transformer',
      { format: 'adapter', config: flow, adapter: lora },
      'diffusers',
      'DiffusionPipeline',
    ],
    [
      'LoRA of one that predicts samples',
      { format: 'adapter', config: { ...flow, prediction: 'sample' }, adapter: lora },
      'editrl',
      null,
    ],
    ['LoRA over what is out of reach', { format: 'adapter', config: null, adapter: lora }, 'peft', null],
    ['an IP-Adapter', { format: 'adapter', config: flow, adapter: { peft_type: 'IP_ADAPTER' } }, 'editrl', null],
  ] as const)('of %s', (_, files, library, name) => {
    const loader = loaderOf(files);
    expect([loader.library, loader.model?.name ?? null]).toEqual([library, name]);
  });
});

it('hides secrets and passwords in the command and the settings', () => {
  const run = new FakeRun(folder(), 'run', { note: 'token-of-mine', launch: { env: { A: 'hidden-in-env' } } });
  const record = JSON.parse(readFileSync(run.paths.record, 'utf8')) as { attempts: object[] };
  const command = ['run', 'a b.jsonnet', '--set', 'x=token-of-mine', '--set', 'y=http://me:pw@host/'];
  writeFileSync(run.paths.record, JSON.stringify({ ...record, attempts: [{ ...record.attempts[0], command }] }));
  const out = folder();
  mkdirSync(out, { recursive: true });
  const exported = {
    paths: run.paths,
    checkpoint: out,
    iteration: 5,
    format: 'checkpoint',
    place: 'this folder',
  } as const;
  writeCard(out, exported, { HF_TOKEN: 'token-of-mine' });
  const texts = ['README.md', 'editrl_run.json'].map((name) => readFileSync(join(out, name), 'utf8'));
  expect(texts[0]).toContain("editrl run 'a b.jsonnet' --set x=[key] --set y=http://host/\n");
  for (const text of texts) expect(text).not.toMatch(/token-of-mine|hidden-in-env|pw@/);
});
