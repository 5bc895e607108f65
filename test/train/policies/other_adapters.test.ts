import { cpSync, mkdtempSync, renameSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, describe, expect, it } from 'vitest';
import { encodeSafetensors, readSafetensors, type FloatTensor } from '../../../src/core/safetensors.js';
import { decoderCheck } from '../../../src/recipes/shared/checks.js';
import { checkFlowModel, openFlowModel } from '../../../src/train/policies/flow/load.js';
import { peftDefaults } from '../../../src/models/adapters/peft_defaults.js';
import { readPeftConfig } from '../../../src/models/adapters/peft_config.js';
import { descriptionOf } from '../../../src/models/adapters/files.js';
import {
  checkAdapters,
  describeModel,
  openModel,
  peftNames,
  withStoredAdapter,
} from '../../../src/models/adapters/decoder.js';
import { unrestricted } from '../../../src/models/tokenizer/format.js';
import { tokenPolicy } from './small_lesson.js';

const at = (path: string): string => fileURLToPath(new URL(path, import.meta.url));
const fixtures = at('./other_adapters');
const bases = {
  tokens: at('../../compute/nets/decoder/fixtures/llama'),
  flow: at('../../compute/nets/flow/fixtures/flux'),
};
const root = mkdtempSync(join(tmpdir(), 'editrl-other-adapters-'));
afterAll(() => rmSync(root, { recursive: true }));

interface Expected {
  readonly tokens: Readonly<
    Record<string, { readonly ids: readonly (readonly number[])[]; readonly logProbs: readonly (readonly number[])[] }>
  >;
  readonly flow: Readonly<Record<string, { readonly layer: string; readonly weight: readonly number[] }>>;
}
const expected = JSON.parse(readFileSync(join(fixtures, 'expected.json'), 'utf8')) as Expected;

/** What peft saved, over the base where it lies here; `change` stands over what its config says. */
function adapterOf(kind: 'tokens' | 'flow', name: string, change: Record<string, unknown> = {}): string {
  const folder = mkdtempSync(join(root, `${name}-`));
  cpSync(join(fixtures, kind, name), folder, { recursive: true });
  const path = join(folder, 'adapter_config.json');
  const config = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
  writeFileSync(path, JSON.stringify({ ...config, base_model_name_or_path: bases[kind], ...change }));
  return folder;
}

function checkTokens(folder: string): void {
  decoderCheck(folder, { lora: null, contextSize: 32 }).run();
}

describe('adapters of a language model that peft saved', () => {
  it.each(Object.entries(expected.tokens))('%s computes what peft does', async (name, { ids, logProbs }) => {
    const folder = adapterOf('tokens', name);
    expect(() => checkTokens(folder)).not.toThrow();
    const { config, weights } = openModel(folder);
    const format = {
      size: config.vocab_size,
      secondPart: null,
      ends: new Set([2]),
      tokenizerFiles: {},
      start: () => unrestricted,
    };
    const policy = tokenPolicy({ config, weights, format });
    const groups = ids.map((row) => ({
      prompt: { tokens: { ids: row.slice(0, 1) } },
      answers: [{ ids: Int32Array.from(row.slice(1)) }],
    }));
    const found = await policy.statistics(groups, 'current');
    await policy.dispose();
    logProbs.forEach((row, i) => row.forEach((wanted, t) => expect(found[i][0].logProbs[t]).toBeCloseTo(wanted, 3)));
  });

  it.each([
    ['lora_bias', /lora_bias: true: the adapter has biases/],
    ['pissa', /init_lora_weights: "pissa": its base was changed before training/],
    ['olora', /init_lora_weights: "olora": its base was changed/],
    ['bias', /bias: "lora_only": the biases of the base were trained/],
    ['modules_to_save', /modules_to_save: \["norm"\]: whole modules/],
    ['trainable_token_indices', /trainable_token_indices: \[3,5\]: embeddings/],
    ['target_parameters', /target_parameters: \["mlp.down_proj.weight"\]: parameters other than linear layers/],
    ['layer_replication', /layer_replication: \[\[0,2\],\[1,2\]\]: layers of the base occur several times/],
    ['rank_pattern', /rank_pattern: .*: its layers have several ranks/],
    ['alpha_pattern', /alpha_pattern: .*: its layers have several scales/],
    ['use_dora', /use_dora: true: DoRA/],
    ['use_bdlora', /use_bdlora: .*: its matrices are block-diagonal/],
    ['kasa_config', /kasa_config: .*: KaSA/],
    ['alora_invocation_tokens', /alora_invocation_tokens: \[7\]: it acts only behind its invocation tokens/],
    ['ensure_weight_tying', /ensure_weight_tying: true: the adapter of the output head/],
    ['fan_in_fan_out', /fan_in_fan_out: true: the layers of its base have transposed weights/],
    ['saved_embeddings', /an unexpected tensor: base_model\.model\.lm_head\.weight \(and 1 more\)/],
  ])('%s is rejected, before a run and when it is opened', (name, message) => {
    const folder = adapterOf('tokens', name);
    expect(() => checkTokens(folder)).toThrow(message);
    expect(() => openModel(folder)).toThrow(message);
  });

  it('tensors are rejected by name and number if the config does not mention them', () => {
    const folder = adapterOf('tokens', 'lora_bias', { lora_bias: false });
    const message =
      /an unexpected tensor: base_model\.model\.model\.layers\.0\.self_attn\.q_proj\.lora_B\.bias \(and 2 more\)/;
    expect(() => openModel(folder)).toThrow(message);
    expect(() => checkTokens(folder)).toThrow(message);
  });

  it('targets that match no layer are those of the file', () => {
    const folder = adapterOf('tokens', 'gaussian', { target_modules: ['c_attn'] });
    expect(() => openModel(folder)).toThrow(
      expect.objectContaining({ where: `target_modules in ${join(folder, 'adapter_config.json')}` }),
    );
  });
});

describe('an adapter whose file and description differ', () => {
  /** The adapter over q_proj of all layers, with other tensors. */
  function withTensors(change: (tensors: Map<string, FloatTensor>) => Map<string, FloatTensor>, config = {}): string {
    const folder = adapterOf('tokens', 'gaussian', config);
    const file = join(folder, 'adapter_model.safetensors');
    writeFileSync(file, encodeSafetensors(change(readSafetensors(file))));
    return folder;
  }
  const none = (): Map<string, FloatTensor> => new Map();
  const firstLayer = (tensors: Map<string, FloatTensor>): Map<string, FloatTensor> =>
    new Map([...tensors].filter(([name]) => name.includes('.layers.0.')));
  const renamed =
    (from: RegExp, to: string) =>
    (tensors: Map<string, FloatTensor>): Map<string, FloatTensor> =>
      new Map([...tensors].map(([name, tensor]) => [name.replace(from, to), tensor]));

  it.each<[string, () => string, RegExp]>([
    ['no tensors', () => withTensors(none), /no tensors/],
    ['no tensors beside exclude_modules', () => withTensors(none, { exclude_modules: ['lm_head'] }), /no tensors/],
    ['no tensors beside layers_to_transform', () => withTensors(none, { layers_to_transform: [0, 1] }), /no tensors/],
    ['one layer of three', () => withTensors(firstLayer), /lacks 4 of 6 tensors .*layers\.1\./],
    [
      'one layer of three beside exclude_modules',
      () => withTensors(firstLayer, { exclude_modules: ['lm_head'] }),
      /lacks 4 of 6 tensors/,
    ],
    [
      'one layer of the two in layers_to_transform',
      () => withTensors(firstLayer, { layers_to_transform: [0, 1] }),
      /lacks 2 of 4 tensors/,
    ],
    [
      'more layers than layers_to_transform',
      () => withTensors((all) => all, { layers_to_transform: 1 }),
      /unexpected tensor/,
    ],
    [
      'a layer that is excluded',
      () => withTensors((all) => all, { exclude_modules: '.*layers\\.2\\..*' }),
      /an unexpected tensor: .*layers\.2\./,
    ],
    [
      'tensors without numbers',
      () =>
        withTensors((all) => new Map([...all.keys()].map((name) => [name, { shape: [0], data: new Float32Array() }]))),
      /no numbers in .*q_proj\.lora_A/,
    ],
    ["names without peft's prefix", () => withTensors(renamed(/^base_model\.model\./, '')), /lack PEFT's prefix/],
    ['no base', () => adapterOf('tokens', 'gaussian', { base_model_name_or_path: null }), /names no base model/],
    [
      'a pickle',
      () => {
        const folder = adapterOf('tokens', 'gaussian');
        renameSync(join(folder, 'adapter_model.safetensors'), join(folder, 'adapter_model.bin'));
        return folder;
      },
      /found: adapter_model\.bin, a pickle/,
    ],
    [
      'an expression that is none',
      () => adapterOf('tokens', 'gaussian', { target_modules: '(?>q)_proj' }),
      /not a regular expression/,
    ],
    [
      'layers_to_transform beside an expression',
      () => adapterOf('tokens', 'gaussian', { target_modules: '.*q_proj', layers_to_transform: [0] }),
      /requires a list of target_modules/,
    ],
  ])('is rejected with %s', (_, make, message) => {
    const folder = make();
    expect(() => checkTokens(folder)).toThrow(message);
    expect(() => openModel(folder)).toThrow(message);
  });

  const merged = (folder: string): string =>
    JSON.stringify([...openModel(folder).weights].map(([, { data }]) => [...data]));

  it.each<[string, () => string]>([
    ["the adapter's name in its tensors", () => withTensors(renamed(/\.weight$/, '.default.weight'))],
    [
      'an expression in the words of Python',
      () => adapterOf('tokens', 'gaussian', { target_modules: '(?P<l>.*)\\.(q_proj)\\Z' }),
    ],
    [
      'exclude_modules that name none of its layers',
      () => adapterOf('tokens', 'gaussian', { exclude_modules: ['lm_head'] }),
    ],
    [
      'layers_to_transform that name all of them',
      () => adapterOf('tokens', 'gaussian', { layers_to_transform: [0, 1, 2], layers_pattern: 'layers' }),
    ],
  ])('is read with %s', (_, make) => {
    const folder = make();
    checkTokens(folder);
    expect(merged(folder)).toBe(merged(adapterOf('tokens', 'gaussian')));
  });

  it('is read with the layers that it names alone', () => {
    const folder = withTensors(firstLayer, { layers_to_transform: [0] });
    checkTokens(folder);
    const { adapter } = withStoredAdapter(describeModel(folder), folder);
    expect([...adapter.layers]).toEqual(['model.layers.0.self_attn.q_proj']);
  });
});

interface Named {
  readonly words: string;
  readonly images: string;
}

/** The names of layers in files, and a layer of the encoder by its name in transformers and here. */
const familiesOfImages: readonly {
  readonly family: string;
  readonly namings: Readonly<Record<string, Named>>;
  readonly output: readonly [stored: string, own: string];
}[] = [
  ...['qwen2_5_vl', 'qwen3_vl'].map((family) => ({
    family,
    namings: {
      old: { words: 'model.layers', images: 'visual.' },
      new: { words: 'model.language_model.layers', images: 'model.visual.' },
    },
    output: ['attn.proj', 'visual.blocks.0.attn.proj'] as const,
  })),
  {
    family: 'smolvlm',
    namings: { new: { words: 'model.text_model.layers', images: 'model.vision_model.' } },
    output: ['out_proj', 'visual.encoder.layers.0.self_attn.out_proj'],
  },
];

describe.each(familiesOfImages)('an adapter of a model that reads images: $family', ({ family, namings, output }) => {
  const model = at(`../../compute/nets/vision/fixtures/${family}`);
  const [stored, own] = output;
  const { words } = namings['new'];
  const depth = describeModel(model).num_hidden_layers;
  const textModel = words.slice(0, -'.layers'.length);

  /** Over q_proj and v_proj of its text model, and with `images` over a layer of its vision encoder. */
  function adapterOver({ words, images: encoder }: Named, targets: string | string[], images = false): string {
    const folder = mkdtempSync(join(root, 'seeing-'));
    const weights = openModel(model, 'words and images').weights;
    const tensors = new Map<string, FloatTensor>();
    for (const [name, { shape }] of weights) {
      const isAdapted =
        /^model\..*self_attn\.[qv]_proj\.weight$/.test(name) || (images && name.endsWith(`${stored}.weight`));
      if (!isAdapted) continue;
      const layer = name
        .replace(/^model\.layers/, words)
        .replace(/^visual\./, encoder)
        .slice(0, -'.weight'.length);
      const [outputs, inputs] = shape;
      const filled = (shape: number[]): FloatTensor => ({
        shape,
        data: new Float32Array(shape[0] * shape[1]).fill(0.1),
      });
      tensors.set(`base_model.model.${layer}.lora_A.weight`, filled([2, inputs]));
      tensors.set(`base_model.model.${layer}.lora_B.weight`, filled([outputs, 2]));
    }
    writeFileSync(join(folder, 'adapter_model.safetensors'), encodeSafetensors(tensors));
    const config = { peft_type: 'LORA', base_model_name_or_path: model, r: 2, lora_alpha: 2, target_modules: targets };
    writeFileSync(join(folder, 'adapter_config.json'), JSON.stringify(config));
    return folder;
  }

  const swift = `^(${textModel.replaceAll('.', String.raw`\.`)}(?=\\.).*\\.(q_proj|v_proj))$`;
  const targets: readonly (readonly [string, string | readonly string[]])[] = [
    // SmolVLM's encoder has layers of these names, too.
    ...(family === 'smolvlm' ? [] : [['bare names', ['q_proj', 'v_proj']] as const]),
    ["ms-swift's expression", swift],
    ['an expression that leaves out the vision encoder', '^(?!.*visi?on|.*visual).*(?:q_proj|v_proj).*'],
    [
      'whole names',
      Array.from({ length: depth }, (_, i) => i).flatMap((i) =>
        ['q_proj', 'v_proj'].map((one) => `${words}.${i}.self_attn.${one}`),
      ),
    ],
  ];

  it.each(Object.keys(namings).flatMap((age) => targets.map(([form, list]) => [age, form, list] as const)))(
    'is read under its %s names with %s, with and without images',
    (age, _, list) => {
      const folder = adapterOver(namings[age], typeof list === 'string' ? list : [...list]);
      for (const part of ['words', 'words and images'] as const) {
        checkAdapters(folder, part);
        const [found, base] = [openModel(folder, part).weights, openModel(model, part).weights];
        const changed = [...found].flatMap(([name, { data }]) =>
          data.some((value, i) => value !== base.get(name)?.data[i]) ? [name] : [],
        );
        expect(changed.every((name) => /^model\.layers\.\d\.self_attn\.[qv]_proj\.weight$/.test(name))).toBe(true);
        expect(changed).toHaveLength(2 * openModel(model, part).config.num_hidden_layers);
      }
    },
  );

  it("is written under transformers' names for it, though a run reads words alone", () => {
    const [config, description] = [describeModel(model), descriptionOf(model)];
    expect(peftNames({ config, description })('model.layers.0.x')).toBe(`${words}.0.x`);
    expect(peftNames({ config })('model.layers.0.x')).toBe('model.layers.0.x');
  });

  it('may change its vision encoder', () => {
    for (const naming of Object.values(namings)) {
      const folder = adapterOver(naming, `.*(${naming.words}.*[qv]_proj|${stored})`, true);
      checkAdapters(folder, 'words and images');
      const { adapter } = withStoredAdapter(describeModel(folder, 'words and images'), folder);
      expect(adapter.layers.has(own)).toBe(true);
    }
  });
});

describe('adapters of a flow model that peft saved', () => {
  it('some layers are left out by exclude_modules', () => {
    const folder = adapterOf('flow', 'exclude_modules');
    checkFlowModel(folder, { trains: 'all', lora: null, imagePrompt: null });
    const [base, { weights }] = [openFlowModel(bases.flow).weights, openFlowModel(folder)];
    const { layer, weight } = expected.flow.exclude_modules;
    weight.forEach((wanted, i) => expect(weights.get(`${layer}.weight`)?.data[i]).toBeCloseTo(wanted, 5));
    const excluded = 'single_transformer_blocks.0.attn.to_q.weight';
    expect(weights.get(excluded)).toEqual(base.get(excluded));
  });

  it.each([
    ['lora_bias', {}, /lora_bias: true: the adapter has biases/],
    ['lora_bias', { lora_bias: false }, /an unexpected tensor: base_model\.model\.\S+\.lora_B\.bias \(and \d+ more\)/],
    ['pissa', {}, /init_lora_weights: "pissa": its base was changed/],
    ['bias', {}, /bias: "lora_only": the biases of the base were trained/],
    ['use_dora', {}, /use_dora: true: DoRA/],
  ])('%s %j is rejected, before a run and when it is opened', (name, change, message) => {
    const folder = adapterOf('flow', name, change);
    expect(() => checkFlowModel(folder, { trains: 'all', lora: null, imagePrompt: null })).toThrow(message);
    expect(() => openFlowModel(folder)).toThrow(message);
  });
});

describe('keys of adapter_config.json', () => {
  const plain = { ...peftDefaults, base_model_name_or_path: 'base', target_modules: ['q_proj'] };
  const read = (change: object): unknown => readPeftConfig({ ...plain, ...change }, 'file');

  it.each([
    {},
    { a_later_key: null },
    { a_later_key: false },
    { a_later_key: [] },
    { a_later_key: {} },
    { a_later_key: '' },
    { init_lora_weights: false },
    { init_lora_weights: 'eva', eva_config: { rho: 2 } },
    { lora_dropout: 0.1, inference_mode: true, task_type: 'CAUSAL_LM', peft_version: '0.30.0' },
    { auto_mapping: { base_model_class: 'X', parent_library: 'y' }, megatron_core: 'other' },
    { rank_pattern: null, alpha_pattern: null },
  ])('%j asks for nothing', (change) => {
    expect(read(change)).toMatchObject({ base: 'base', lora: { rank: 8, alpha: 8 } });
  });

  it.each([
    [{ a_later_key: true }, /a_later_key: true: the key is unknown/],
    [{ a_later_key: 0 }, /a_later_key: 0: the key is unknown/],
    [{ a_later_key: 'x'.repeat(99) }, /a_later_key: "x{59}…: the key is unknown/],
    [{ toString: 1 }, /toString: 1: the key is unknown/],
    [{ init_lora_weights: 'pissa_niter_4' }, /its base was changed/],
    [{ init_lora_weights: 'corda' }, /its base was changed/],
    [{ init_lora_weights: 'of_a_later_version' }, /its base was changed/],
    [{ use_qalora: true }, /pools the inputs/],
    [{ arrow_config: { top_k: 1 } }, /a router/],
    [{ r: 0 }, /r: /],
    [{ target_modules: null }, /target_modules: /],
    [{ peft_type: 'IA3', a_later_key: true }, /peft_type: /],
  ])('%j is rejected', (change, message) => {
    expect(() => read(change)).toThrow(message);
  });
});
