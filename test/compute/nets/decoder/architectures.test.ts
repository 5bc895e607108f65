import { cpSync, mkdtempSync, readFileSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, it } from 'vitest';
import { Session } from '../../../../src/compute/onnx/session.js';
import { Graph } from '../../../../src/compute/graph/ir.js';
import { modelTypes, readArchitecture } from '../../../../src/compute/nets/decoder/architectures.js';
import { sequenceLogits } from '../../../../src/compute/nets/decoder/decoder.js';
import { sequenceInputs } from '../../../../src/compute/nets/decoder/inputs.js';
import { checkDecoder, describeDecoder, openDecoder, remarkOnHead } from '../../../../src/models/networks/decoder.js';
import { Sampler } from '../../../../src/train/policies/tokens/rollout.js';
import { RandomStream } from '../../../../src/core/random.js';
import { encodeSafetensors, readSafetensors, type FloatTensor } from '../../../../src/core/safetensors.js';

const fixtures = fileURLToPath(new URL('./fixtures', import.meta.url));

interface Expected {
  readonly ids: readonly (readonly number[])[];
  readonly logits: readonly (readonly (readonly number[])[])[];
  readonly continued: readonly (readonly number[])[];
}

function expectedOf(name: string): Expected {
  return JSON.parse(readFileSync(join(fixtures, name, 'expected.json'), 'utf8')) as Expected;
}

/** Each covers something that the others do not: biases, scalings, windows, norms of heads, shards, number formats, names. */
const names = [
  'llama',
  'llama3',
  'mistral',
  'qwen2',
  'qwen2_yarn',
  'qwen3',
  'linear',
  'dynamic',
  'qwen2_vl',
  'emu3_text',
  'gemma3',
  'ministral3',
  'olmo2',
  'olmo3',
  'phi3',
  'phi4_mini',
  'gemma3_whole',
  'mistral3',
] as const;

describe.each(names)('a model that transformers saved: %s', (name) => {
  const { config, weights, contextSize } = openDecoder(join(fixtures, name));
  const { ids, logits, continued } = expectedOf(name);

  it('has the logits of transformers to 1e-4 of the largest', async () => {
    const answer = 9;
    const prompt = ids[0].length - answer;
    // One column of padding, on the left.
    const shape = { prompts: 2, answersPerPrompt: 1, promptColumns: prompt + 1, answerColumns: answer };
    const graph = new Graph('sequence');
    const session = await Session.compile(graph, {
      logits: sequenceLogits(config, shape, sequenceInputs(graph, shape)),
    });
    const feeds = {
      prompt_ids: BigInt64Array.from(ids.flatMap((row) => [0n, ...row.slice(0, prompt).map(BigInt)])),
      prompt_padding: Float32Array.from(ids.flatMap((row) => [-1e9, ...row.slice(0, prompt).map(() => 0)])),
      answer_ids: BigInt64Array.from(ids.flatMap((row) => row.slice(prompt).map(BigInt))),
    };
    const found = (await session.run(feeds, weights)).logits as Float32Array;
    const wanted = logits.flatMap((rows) => rows.slice(prompt)).flat();
    const largest = Math.max(...wanted.map(Math.abs));
    const worst = Math.max(...wanted.map((x, i) => Math.abs(x - found[i]) / largest));
    expect(worst).toBeLessThan(1e-4);
  });

  it('continues greedily with the same tokens', async () => {
    const prompts = ids.map((row) => ({ tokens: { ids: row } }));
    const sampler = new Sampler(
      {
        config,
        weights,
        format: {
          size: config.vocab_size,
          secondPart: null,
          ends: new Set<number>(),
          tokenizerFiles: {},
          start: () => {
            throw new Error('not constrained');
          },
        },
      },
      { contextSize: contextSize ?? 64, constrained: false, separateVocabularies: false, session: {} },
    );
    const answers = await sampler.sample(
      {
        prompts,
        among: prompts,
        answersPerPrompt: 1,
        how: { temperature: 0, topP: 1, topK: -1, maxTokens: continued[0].length, logProbTemperature: 1 },
        weights: 'current',
        random: () => new RandomStream(1),
      },
      weights,
      'loaded',
    );
    await sampler.dispose();
    expect(answers.map(([answer]) => [...answer.ids])).toEqual(continued);
  });
});

/** The least that a config.json has to say. */
const sizes = { vocab_size: 8, hidden_size: 8, intermediate_size: 8, num_hidden_layers: 4, num_attention_heads: 2 };

describe('a model folder', () => {
  const folders: string[] = [];
  afterEach(() => {
    for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
  });

  /** A copy of a fixture, with its config changed. */
  function changed(name: (typeof names)[number], change: Record<string, unknown>): string {
    const folder = mkdtempSync(join(tmpdir(), 'editrl-model-'));
    folders.push(folder);
    cpSync(join(fixtures, name), folder, { recursive: true });
    const path = join(folder, 'config.json');
    const config = JSON.parse(readFileSync(path, 'utf8')) as Record<string, unknown>;
    writeFileSync(path, JSON.stringify({ ...config, ...change }));
    return folder;
  }

  const index = 'model.safetensors.index.json';
  const replaced = (file: string, from: string, to: string) => (folder: string) => {
    const path = join(folder, file);
    writeFileSync(path, readFileSync(path, 'utf8').replaceAll(from, to));
  };

  it.each<[string, (typeof names)[number], (folder: string) => void, RegExp]>([
    ['no config.json', 'llama', (folder) => rmSync(join(folder, 'config.json')), /there is no config\.json/],
    ['half a config.json', 'llama', replaced('config.json', '}', ''), /cannot be read: .*JSON/],
    [
      'a missing shard',
      'mistral',
      (folder) => rmSync(join(folder, 'model-00003-of-00007.safetensors')),
      /not there: model-00003/,
    ],
    [
      'an index that names too much',
      'mistral',
      replaced(index, 'model.norm.weight', 'model.other.weight'),
      /maps model\.other\.weight/,
    ],
    [
      'an index that leads elsewhere',
      'mistral',
      replaced(index, 'model-00001', '../model-00001'),
      /not there: \.\.\/model-00001/,
    ],
    [
      'no embeddings',
      'mistral',
      replaced(index, 'model.embed_tokens', 'model.norm'),
      /have no embeddings; allowed names/,
    ],
    [
      'half a file',
      'llama',
      (folder) => truncateSync(join(folder, 'model.safetensors'), 50_000),
      /not a whole safetensors/,
    ],
    [
      'no weights',
      'llama',
      (folder) => rmSync(join(folder, 'model.safetensors')),
      /no weights; allowed: policy\.safetensors, model/,
    ],
    [
      'pickles alone',
      'llama',
      (folder) => renameSync(join(folder, 'model.safetensors'), join(folder, 'pytorch_model.bin')),
      /no weights; .*; found: pytorch_model\.bin, pickles/,
    ],
  ])('is rejected with %s', (_, name, spoil, message) => {
    const folder = changed(name, {});
    spoil(folder);
    expect(() => openDecoder(folder)).toThrow(message);
  });

  /** A copy of a fixture in one file whose tensors are changed. */
  function withTensors(
    name: (typeof names)[number],
    change: (tensors: Map<string, FloatTensor>) => void,
    config: Record<string, unknown> = {},
  ): string {
    const folder = changed(name, config);
    const file = join(folder, 'model.safetensors');
    const tensors = readSafetensors(file);
    change(tensors);
    writeFileSync(file, encodeSafetensors(tensors));
    return folder;
  }

  const table = (tensors: Map<string, FloatTensor>): FloatTensor =>
    tensors.get('model.embed_tokens.weight') ?? { shape: [], data: new Float32Array() };

  it('has the head of its files, whatever its config says, and reports it', () => {
    const folder = withTensors('llama3', (tensors) => {
      const { shape, data } = table(tensors);
      tensors.set('lm_head.weight', { shape, data: data.map((value, i) => (i === 70 ? value + 1 : value)) });
    });
    const { config, weights } = openDecoder(folder);
    expect(config.tie_word_embeddings).toBe(false);
    expect(describeDecoder(folder).config.tie_word_embeddings).toBe(false);
    expect(weights.get('lm_head.weight')?.data[70]).toBe((weights.get('model.embed_tokens.weight')?.data[70] ?? 0) + 1);
    expect(remarkOnHead(folder)).toMatch(/lm_head\.weight differs/);
  });

  it('shares its embeddings with a head that equals them', () => {
    const folder = withTensors('llama3', (tensors) => tensors.set('lm_head.weight', table(tensors)));
    expect(openDecoder(folder).config.tie_word_embeddings).toBe(true);
    expect(openDecoder(folder).weights.has('lm_head.weight')).toBe(false);
    expect(remarkOnHead(folder)).toBeNull();
  });

  it('is tied as the whole model is, whatever its text model says', () => {
    const whole = (outer: object, inner: object) => {
      const text = { ...sizes, ...inner };
      return readArchitecture({ model_type: 'qwen2_5_vl', text_config: text, ...outer }, 'here').config;
    };
    const [yes, no] = [{ tie_word_embeddings: true }, { tie_word_embeddings: false }];
    expect(
      [whole(yes, no), whole(no, yes), whole({}, yes), whole(yes, {}), whole({}, {})].map(
        (one) => one.tie_word_embeddings,
      ),
    ).toEqual([true, false, true, true, false]);
  });

  it.each([
    ['biases that its config denies', 'llama3', 'model.layers.0.self_attn.q_proj.bias'],
    ["a classifier's head", 'llama', 'score.weight'],
    ['more layers than its config', 'qwen3', 'model.layers.3.mlp.up_proj.weight'],
    ['norms of heads', 'llama', 'model.layers.1.self_attn.q_norm.weight'],
    ['a second half of a vision encoder', 'qwen2_vl', 'model.visual.blocks.0.norm1.weight'],
  ] as const)('is refused with %s, by the name of the tensor', (_, name, tensor) => {
    const folder = withTensors(name, (tensors) => tensors.set(tensor, { shape: [1], data: new Float32Array(1) }));
    for (const open of [checkDecoder, openDecoder]) {
      expect(() => open(folder)).toThrow(`unused tensors: ${tensor}`);
    }
  });

  it('may have what its config implies', () => {
    const folder = withTensors('llama', (tensors) =>
      tensors.set('model.layers.0.self_attn.rotary_emb.inv_freq', { shape: [4], data: new Float32Array(4) }),
    );
    expect(() => checkDecoder(folder)).not.toThrow();
  });

  const kinds = (...types: string[]) => ({ layer_types: types });
  const [full, sliding] = ['full_attention', 'sliding_attention'];
  const unused = { use_sliding_window: false };
  const rope = (rope_type: string, more: object = {}) => ({ rope_type, rope_theta: 10_000, ...more });

  const longRope = rope('longrope', { short_factor: [1], long_factor: [1] });

  it.each([
    [
      'quantized weights',
      'llama',
      { quantization_config: { quant_method: 'gptq' } },
      /quant_method "gptq".*not supported/,
    ],
    ['heads that do not go together', 'llama', { num_key_value_heads: 3 }, /not a multiple of num_key_value_heads 3/],
    [
      'another architecture',
      'llama',
      { model_type: 'gpt2' },
      /'gpt2' is not supported; allowed: llama, mistral, ministral, ministral3, /,
    ],
    ['layers of linear attention', 'llama', { model_type: 'qwen3_5' }, /not computed here: .* of the gated delta rule/],
    ['a family with parts of its own', 'llama', { model_type: 'gemma3n' }, /not computed here: .*AltUp/],
    [
      'factors of another rotation',
      'qwen2_yarn',
      { rope_parameters: rope('yarn', { factor: 4, short_factor: [1] }) },
      /'yarn' with short_factor/,
    ],
    ['too few factors', 'phi4_mini', { rope_parameters: longRope }, /short_factor has 1 numbers; allowed: 8/],
    ['no model_type', 'llama', { model_type: undefined, vocab_size: undefined }, /names no model_type/],
    [
      'another rope type',
      'llama',
      { rope_parameters: rope('proportional') },
      /"proportional" is not supported; allowed: default, lin/,
    ],
    ['half a scaling', 'llama', { rope_parameters: rope('llama3', { factor: 8 }) }, /rope_scaling\.low_freq_factor/],
    ['a rotation of parts of heads', 'llama', { partial_rotary_factor: 0.5 }, /partial_rotary_factor 0\.5/],
    [
      'a rotation of parts of heads',
      'llama',
      { rope_scaling: { rope_type: 'default', partial_rotary_factor: 0.5 }, rope_parameters: null },
      /partial_rotary_factor 0\.5/,
    ],
    [
      'a rotation of parts of heads in some layers',
      'gemma3',
      { rope_parameters: { full_attention: rope('default', { partial_rotary_factor: 0.5 }) } },
      /partial_rotary_factor 0\.5/,
    ],
    [
      'another text model in a vision model',
      'mistral3',
      { text_config: { model_type: 'mistral4', ...sizes } },
      /text_config\.model_type "mistral4" is not supported; allowed: llama/,
    ],
    ['another activation', 'llama', { hidden_act: 'gelu' }, /hidden_act 'gelu' is not supported; allowed: silu/],
    [
      "another family's activation",
      'gemma3',
      { hidden_activation: 'silu' },
      /'silu' is not supported; allowed: gelu_py/,
    ],
    ['capped logits', 'gemma3', { final_logit_softcapping: 30 }, /final_logit_softcapping 30 is not supported/],
    [
      'windows that turn by scaled angles',
      'gemma3',
      { rope_parameters: { sliding_attention: rope('linear', { factor: 2 }) } },
      /"linear" of sliding_attention is not supported/,
    ],
    ['a wrong size', 'llama', { hidden_size: 0 }, /hidden_size/],
    ['other sizes than its weights', 'llama', { intermediate_size: 47 }, /gate_proj\.weight has shape \[48, 32\]/],
    ['a head that is tied but denied', 'llama3', { tie_word_embeddings: false }, /no lm_head\.weight/],
    ['layers of an unknown kind', 'qwen3', kinds('chunked_attention', full, full), /'chunked_attention'/],
    ['too few kinds of layers', 'llama', kinds(full), /names 1 layers/],
    ['windows that it does not use', 'qwen3', { ...kinds(sliding, full, full), ...unused }, /no window/],
    ['windows that it does not use', 'qwen2', { ...kinds(full, full, sliding), ...unused }, /no window/],
    ['windows of no size', 'mistral', { ...kinds(sliding, full, full), sliding_window: null }, /no window/],
    ['windows of a family without', 'llama', kinds(sliding, full, full), /no window/],
    ['no window in Gemma', 'gemma3', { sliding_window: null }, /sliding_window null is not supported/],
    ['yarn without a factor', 'qwen2_yarn', { rope_parameters: rope('yarn') }, /rope_scaling\.factor/],
    ["pictures' rotation of words alone", 'llama', { rope_parameters: rope('mrope') }, /"mrope" is not supported/],
    ['an end that is no token', 'llama', { eos_token_id: [2, 61] }, /61 is not in the vocabulary of 61/],
    ['an end that is no token', 'llama', { eos_token_id: -1 }, /eos_token_id -1 is not in/],
    ['two rotations', 'linear', { rope_scaling: { type: 'linear', factor: 8 } }, /8.* differ/],
    ['two rotations', 'llama', { rope_scaling: { rope_type: 'default', rope_theta: 5 } }, /5.* differ/],
  ] as const)('is refused with %s (%s %j)', (_, name, change, message) => {
    const folder = changed(name, change);
    expect(() => checkDecoder(folder)).toThrow(message);
  });

  it('is rejected with another size of heads than its width has, if only the width counts', () => {
    const read = (head_dim: number) => readArchitecture({ model_type: 'qwen2_vl', ...sizes, head_dim }, 'here').config;
    expect(read(4).head_dim).toBe(4);
    expect(() => read(8)).toThrow(/head_dim 8 is not supported/);
  });

  it('may say its rotation twice', () => {
    const { config } = openDecoder(join(fixtures, 'linear'));
    const { rope_theta, rope_scaling } = config;
    const { factor } = rope_scaling as { factor: number };
    const twice = { rope_scaling: { type: 'linear', factor }, rope_parameters: rope('linear', { factor, rope_theta }) };
    expect(openDecoder(changed('linear', { ...twice, rope_theta })).config).toEqual(config);
  });

  it('may say its rotation in the words of older files', () => {
    const { config } = readArchitecture(
      { model_type: 'llama', ...sizes, rope_theta: 500, rope_scaling: { type: 'linear', factor: 2 } },
      'here',
    );
    expect(config).toMatchObject({ rope_theta: 500, rope_scaling: { rope_type: 'linear', factor: 2 }, head_dim: 4 });
  });

  it('may be Gemma 3 as its first files say it', () => {
    const gemma = { ...sizes, hidden_size: 16, num_hidden_layers: 7 };
    const older = {
      ...{ rope_theta: 1e6, rope_local_base_freq: 1e4, rope_scaling: { rope_type: 'linear', factor: 8 } },
      ...{ sliding_window: 512, sliding_window_pattern: 3, num_key_value_heads: 1 },
    };
    const { config, contextSize } = readArchitecture({ model_type: 'gemma3_text', ...gemma, ...older }, 'here');
    expect(config).toEqual({
      ...gemma,
      num_key_value_heads: 1,
      head_dim: 256,
      rope_theta: 1e6,
      rope_scaling: { rope_type: 'linear', factor: 8 },
      rms_norm_eps: 1e-6,
      tie_word_embeddings: true,
      attention_bias: false,
      attention_output_bias: false,
      qk_norm: 'head',
      sliding_window: 512,
      sliding_layers: [0, 1, 3, 4, 6],
      sliding_rope_theta: 1e4,
      activation: 'gelu_tanh',
      query_pre_attn_scalar: 256,
      embedding_scale: 4,
      norm_scale: 'one_plus_weight',
      block_norms: 'before_and_after',
    });
    expect(contextSize).toBe(131_072);
    // The published vision models leave out the sizes that they share.
    const whole = { model_type: 'gemma3', vision_config: {} };
    const { vocab_size, num_attention_heads, ...left } = { ...gemma, ...older };
    const inside = readArchitecture({ ...whole, text_config: { model_type: 'gemma3_text', ...left } }, 'here').config;
    expect([vocab_size, num_attention_heads]).toEqual([8, 2]);
    expect(inside).toEqual({ ...config, vocab_size: 262_208, num_attention_heads: 8 });
    // The usual pattern: five layers with a window, one without.
    const usual = readArchitecture({ model_type: 'gemma3_text', ...gemma }, 'here').config;
    expect([usual.sliding_layers, usual.sliding_window]).toEqual([[0, 1, 2, 3, 4, 6], 4096]);
  });

  it('follows the rules of each family for windows', () => {
    const read = (more: Record<string, unknown>) => readArchitecture({ ...sizes, ...more }, 'here').config;
    expect(read({ model_type: 'mistral' }).sliding_window).toBe(4096);
    expect(read({ model_type: 'mistral', sliding_window: null }).sliding_window).toBeUndefined();
    expect(read({ model_type: 'qwen2', sliding_window: 16 }).sliding_window).toBeUndefined();
    const qwen = read({ model_type: 'qwen2', sliding_window: 16, use_sliding_window: true, max_window_layers: 2 });
    expect([qwen.sliding_window, qwen.sliding_layers]).toEqual([16, [2, 3]]);
    expect(read({ model_type: 'qwen2', sliding_window: 16, use_sliding_window: true }).sliding_window).toBeUndefined();
  });

  it('reads no more tokens than a family computes in one way', () => {
    const contextOf = (name: (typeof names)[number], change = {}) => describeDecoder(changed(name, change)).contextSize;
    expect([contextOf('ministral3'), contextOf('phi4_mini'), contextOf('phi3')]).toEqual([40, 40, 64]);
    const without = rope('yarn', { factor: 4, original_max_position_embeddings: 16 });
    expect(contextOf('ministral3', { rope_parameters: without })).toBe(64);
  });

  it("names every family that can be read, also by remote code's name", () => {
    expect(modelTypes).toContain('qwen2_5_vl');
    const { contextSize, config } = readArchitecture({ model_type: 'Emu3', ...sizes }, 'here');
    expect([contextSize, config.rope_theta]).toEqual([9216, 1_000_000]);
  });
});
