import { cpSync, mkdirSync, readdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../src/core/errors.js';
import {
  encodeSafetensors,
  readSafetensors,
  readSafetensorsIndex,
  toStoredBytes,
} from '../../../src/core/safetensors.js';
import { decoderParameters, initDecoder } from '../../../src/compute/nets/decoder/config.js';
import { openDecoder } from '../../../src/models/networks/decoder.js';
import { baseOf } from '../../../src/models/adapters/files.js';
import { openModel } from '../../../src/models/adapters/decoder.js';
import { exportAdapter, exportMerged } from '../../../src/models/adapters/export.js';
import { testFolders } from '../../support/folder.js';
import { adapterCheckpoint } from './exported.js';

const newFolder = testFolders('export');
const place = (): { checkpoint: string; base: string; out: string } => {
  const folder = newFolder();
  const out = join(folder, 'out');
  mkdirSync(out);
  return { ...adapterCheckpoint(folder), out };
};

/** A copy of the base, which a test may change, in the base's place. */
function ownBase(checkpoint: string, base: string): string {
  const own = join(newFolder(), 'base');
  cpSync(base, own, { recursive: true });
  const config = join(checkpoint, 'adapter_config.json');
  writeFileSync(config, readFileSync(config, 'utf8').replace(base, own));
  return own;
}

describe('an exported adapter', () => {
  it('is that of the checkpoint, with its tokenizer and nothing of its training', () => {
    const { checkpoint, out } = place();
    exportAdapter(checkpoint, out);
    const files = ['adapter_config.json', 'adapter_model.safetensors', 'chat_template.jinja', 'tokenizer.json'];
    expect(
      readdirSync(out)
        .filter((name) => name !== 'expected.json')
        .sort(),
    ).toEqual(files);
    for (const file of files) expect(readFileSync(join(out, file))).toEqual(readFileSync(join(checkpoint, file)));
  });

  it('cannot be had of a run that trains all weights', () => {
    const { base, out } = place();
    expect(() => exportAdapter(base, out)).toThrow('the checkpoint has no adapter: the run trains all weights');
  });
});

describe('a merged model', () => {
  it('has the weights of the base with what the adapter adds, by the names and settings of the base', () => {
    const { checkpoint, base, out } = place();
    exportMerged(checkpoint, out, { dtype: 'float32' });
    const [merged, wanted] = [openDecoder(out), openModel(checkpoint)];
    expect(merged.config).toEqual(wanted.config);
    for (const [name, { data }] of wanted.weights) expect(merged.weights.get(name)?.data).toEqual(data);
    const plain = openDecoder(base).weights;
    expect([...plain].some(([name, { data }]) => merged.weights.get(name)?.data.some((x, i) => x !== data[i]))).toBe(
      true,
    );
    const names = (folder: string) =>
      [...readSafetensorsIndex(join(folder, 'model.safetensors')).entries.keys()].sort();
    expect(names(out)).toEqual(names(base));
    const config = (folder: string) => JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object;
    expect(config(out)).toEqual({ ...config(base), dtype: 'float32' });
    expect(readFileSync(join(out, 'tokenizer.json'), 'utf8')).toBe('{"of":"the checkpoint"}');
    expect(readdirSync(out)).not.toContain('adapter_config.json');
    expect(readdirSync(out)).not.toContain('optimizer.safetensors');
  });

  it('in bfloat16 and in several files is the same model, rounded', () => {
    const { checkpoint, out } = place();
    exportMerged(checkpoint, out, { dtype: 'bfloat16', shardBytes: 4000 });
    const shards = readdirSync(out).filter((name) => name.endsWith('.safetensors'));
    expect(shards.length).toBeGreaterThan(1);
    expect(shards[0]).toBe(`model-00001-of-${String(shards.length).padStart(5, '0')}.safetensors`);
    for (const { dtype } of readSafetensorsIndex(join(out, shards[0])).entries.values()) expect(dtype).toBe('BF16');
    const merged = openDecoder(out).weights;
    const worst = [...openModel(checkpoint).weights].map(([name, { data }]) => {
      const found = merged.get(name)?.data ?? [];
      return data.reduce((most, value, i) => Math.max(most, Math.abs(found[i] - value) - Math.abs(value) / 256), -1);
    });
    expect(Math.max(...worst)).toBeLessThanOrEqual(0);
  });

  it('is sampled from as its base says, and as its checkpoint does where the base sets nothing', () => {
    const { checkpoint, base, out } = place();
    const own = ownBase(checkpoint, base);
    const says = (folder: string, of: string) => writeFileSync(join(folder, 'generation_config.json'), of);
    says(checkpoint, '{"top_k":1}');
    const said = () => {
      exportMerged(checkpoint, out, { dtype: 'float32' });
      return readFileSync(join(out, 'generation_config.json'), 'utf8');
    };
    expect(said()).toBe('{"top_k":1}');
    says(own, '{"top_k":2}');
    expect(said()).toBe('{"top_k":2}');
  });

  it('of a run from random weights says in the words of Hugging Face what it is', () => {
    const { out } = place();
    const checkpoint = newFolder();
    const sizes = {
      vocab_size: 11,
      hidden_size: 8,
      intermediate_size: 12,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 1,
    };
    const config = {
      ...sizes,
      head_dim: 4,
      rope_theta: 10_000,
      rms_norm_eps: 1e-5,
      attention_bias: true,
      tie_word_embeddings: false,
    };
    const weights = initDecoder(config, { embedding_std: 0.1, initializer_range: null }, 3);
    writeFileSync(join(checkpoint, 'config.json'), JSON.stringify(config));
    writeFileSync(join(checkpoint, 'generation_config.json'), '{"eos_token_id":[2]}');
    writeFileSync(join(checkpoint, 'policy.safetensors'), encodeSafetensors(weights));
    exportMerged(checkpoint, out, { dtype: 'float32' });
    const opened = openDecoder(out);
    expect([...decoderParameters(opened.config)]).toEqual([...decoderParameters(config)]);
    expect(opened.weights).toEqual(weights);
    expect(JSON.parse(readFileSync(join(out, 'config.json'), 'utf8'))).toMatchObject({
      model_type: 'qwen2',
      eos_token_id: [2],
      rms_norm_eps: 1e-5,
      dtype: 'float32',
    });
    writeFileSync(join(checkpoint, 'config.json'), JSON.stringify({ ...config, qk_norm: true }));
    expect(() => exportMerged(checkpoint, out, { dtype: 'float32' })).toThrow(
      'its family is not recorded, and it has qk_norm',
    );
    writeFileSync(join(checkpoint, 'config.json'), '{"codebook_size":4}');
    expect(() => exportMerged(checkpoint, out, { dtype: 'float32' })).toThrow('this is not a language model');
  });

  // 65520 lies half-way between the largest float16, 65504, and what would be the next one: it rounds to infinity.
  it.each([70_000, 65_520])('in float16 is rejected where a number is too large for it: %i', (number) => {
    const { checkpoint, base, out } = place();
    const file = join(ownBase(checkpoint, base), 'model.safetensors');
    const tensors = readSafetensors(file);
    tensors.get('model.norm.weight')?.data.fill(number);
    writeFileSync(file, encodeSafetensors(tensors));
    const failure = (): void => exportMerged(checkpoint, out, { dtype: 'float16' });
    expect(failure).toThrow(CheckpointError);
    expect(failure).toThrow('model.norm.weight has numbers beyond 65504');
  });
});

describe('the base of an adapter', () => {
  it('is found beside it where the folder of runs was moved, and said where it is not', () => {
    const folder = newFolder();
    const { checkpoint, base } = adapterCheckpoint(folder);
    const parent = join(folder, 'runs', 'parent', 'checkpoints', '000009');
    mkdirSync(join(parent, '..'), { recursive: true });
    cpSync(base, parent, { recursive: true });
    const config = join(checkpoint, 'adapter_config.json');
    writeFileSync(config, readFileSync(config, 'utf8').replace(base, parent));
    expect(baseOf(checkpoint)).toBe(parent);
    renameSync(join(folder, 'runs'), join(folder, 'moved'));
    const moved = checkpoint.replace('/runs/', '/moved/');
    expect(baseOf(moved)).toBe(parent.replace('/runs/', '/moved/'));
    expect(openModel(moved).weights.size).toBeGreaterThan(0);
    renameSync(join(folder, 'moved', 'parent'), join(folder, 'moved', 'other'));
    expect(() => baseOf(moved)).toThrow(`the adapter's base ${parent} is missing`);
  });
});

describe('numbers of fewer bits', () => {
  const bits = (values: readonly number[], dtype: 'BF16' | 'F16') => [
    ...new Uint16Array(toStoredBytes(Float32Array.from(values), dtype).buffer),
  ];

  it('are the nearest, and the even one of two that are as near', () => {
    expect(bits([1, -2, 1 + 2 ** -8, 1 + 3 * 2 ** -8, 3.4e38, NaN], 'BF16')).toEqual([
      0x3f80, 0xc000, 0x3f80, 0x3f82, 0x7f80, 0x7fc0,
    ]);
    expect(bits([1, -2, 65504, 65519, 65520, Infinity, NaN], 'F16')).toEqual([
      0x3c00, 0xc000, 0x7bff, 0x7bff, 0x7c00, 0x7c00, 0x7e00,
    ]);
    expect(bits([1 + 2 ** -11, 1 + 3 * 2 ** -11, 2 - 2 ** -12], 'F16')).toEqual([0x3c00, 0x3c02, 0x4000]);
    expect(bits([2 ** -14, 2 ** -24, 2 ** -25, 3 * 2 ** -25, 2 ** -15 + 2 ** -25, -(2 ** -26), 0, -0], 'F16')).toEqual([
      0x0400, 1, 0, 2, 0x0200, 0x8000, 0, 0x8000,
    ]);
  });
});
