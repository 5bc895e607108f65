/** LoRA of flow transformers in diffusers' form, written and read. */
import { cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { encodeSafetensors, readSafetensors, readSafetensorsIndex } from '../../../../src/core/safetensors.js';
import { exportAdapter, exportMerged } from '../../../../src/models/adapters/export.js';
import { checkFlowModel, openFlowModel } from '../../../../src/train/policies/flow/load.js';
import { testFolders } from '../../../support/folder.js';
import { loraCheckpoint } from './lora_checkpoint.js';

const newFolder = testFolders('diffusers-lora');
const FILE = 'pytorch_lora_weights.safetensors';
const base = (name: string): string =>
  join(import.meta.dirname, '..', '..', '..', 'compute', 'nets', 'flow', 'fixtures', name);
const first = { rank: 3, alpha: 5, targets: ['attn.to_q', 'ff.net.2', 'proj_mlp', 'img_mlp.net.2'].slice(0, 3) };
const second = { rank: 2, alpha: 4, rslora: true, targets: ['attn.to_q', 'proj_out'] };
const read = { trains: 'all', lora: null, imagePrompt: null } as const;

function exported(checkpoint: string): string {
  const out = join(newFolder(), 'out');
  mkdirSync(out);
  exportAdapter(checkpoint, out);
  return out;
}

/** The largest difference between the weights of two models. */
function apart(a: string, b: string): number {
  const [one, other] = [openFlowModel(a).weights, openFlowModel(b).weights];
  expect([...one.keys()].sort()).toEqual([...other.keys()].sort());
  let largest = 0;
  for (const [name, { data }] of one) {
    const beside = other.get(name)!.data;
    for (let i = 0; i < data.length; i++) largest = Math.max(largest, Math.abs(data[i] - beside[i]));
  }
  return largest;
}

describe('an exported LoRA', () => {
  it('has the file, names and metadata of diffusers, and is the same model here', async () => {
    const checkpoint = await loraCheckpoint(newFolder(), base('flux'), first);
    const out = exported(checkpoint);
    expect(readdirSync(out).sort()).toEqual(['adapter_config.json', FILE]);
    const { entries, metadata } = readSafetensorsIndex(join(out, FILE));
    const [name] = entries.keys();
    expect(name).toBe('transformer.single_transformer_blocks.0.attn.to_q.lora_A.weight');
    expect(JSON.parse(metadata['lora_adapter_metadata'])).toMatchObject({
      ...{ 'transformer.r': 3, 'transformer.lora_alpha': 5, 'transformer.use_rslora': false },
      'transformer.peft_type': 'LORA',
    });
    checkFlowModel(out, read);
    expect(apart(out, checkpoint)).toBe(0);
    expect(apart(out, base('flux'))).toBeGreaterThan(0.1);
  });

  it('of a chain is the sum of its adapters over the whole model', async () => {
    const below = await loraCheckpoint(newFolder(), base('flux'), first);
    const checkpoint = await loraCheckpoint(newFolder(), below, second, 2);
    const out = exported(checkpoint);
    const config = JSON.parse(readFileSync(join(out, 'adapter_config.json'), 'utf8')) as Record<string, unknown>;
    expect(config).toMatchObject({ base_model_name_or_path: base('flux'), r: 5, lora_alpha: 5, use_rslora: false });
    expect(apart(out, checkpoint)).toBeLessThan(1e-6);
    expect(apart(out, below)).toBeGreaterThan(0.1);
  });

  it('of a chain is merged into the whole model, in files of diffusers', async () => {
    const below = await loraCheckpoint(newFolder(), base('flux'), first);
    const checkpoint = await loraCheckpoint(newFolder(), below, second, 2);
    const out = join(newFolder(), 'out');
    mkdirSync(out);
    exportMerged(checkpoint, out, { dtype: 'float32', shardBytes: 100_000 });
    const weights = [1, 2].map((shard) => `diffusion_pytorch_model-0000${shard}-of-00002.safetensors`);
    const index = 'diffusion_pytorch_model.safetensors.index.json';
    expect(readdirSync(out).sort()).toEqual(['config.json', ...weights, index]);
    expect(apart(out, checkpoint)).toBeLessThan(1e-6);
    expect(apart(out, below)).toBeGreaterThan(0.1);
  });

  it('of a model that diffusers does not compute stays as it is', async () => {
    const own = newFolder();
    cpSync(base('flux'), own, { recursive: true });
    const config = join(own, 'config.json');
    const json = JSON.parse(readFileSync(config, 'utf8')) as object;
    writeFileSync(config, JSON.stringify({ ...json, prediction: 'sample' }));
    const out = exported(await loraCheckpoint(newFolder(), own, first));
    expect(readdirSync(out).sort()).toEqual(['adapter_config.json', 'adapter_model.safetensors']);
  });
});

describe('a LoRA of diffusers', () => {
  /** With its tensors and metadata changed, and the description beside it. */
  async function foreign(
    beside: object | null,
    metadata: Record<string, string> = { format: 'pt' },
    rename = (name: string): string => name,
  ): Promise<{ folder: string; checkpoint: string }> {
    const checkpoint = await loraCheckpoint(newFolder(), base('flux'), { ...first, alpha: 3 });
    const folder = exported(checkpoint);
    const file = join(folder, FILE);
    const tensors = readSafetensors(file, [...readSafetensorsIndex(file).entries.keys()]);
    const renamed = new Map([...tensors].map(([name, tensor]) => [rename(name), tensor]));
    writeFileSync(file, encodeSafetensors(renamed, metadata));
    const config = join(folder, 'adapter_config.json');
    if (beside === null) rmSync(config);
    else writeFileSync(config, JSON.stringify(beside));
    return { folder, checkpoint };
  }

  it('without metadata has alpha as its rank, and needs only the name of its base beside it', async () => {
    const { folder, checkpoint } = await foreign({ base_model_name_or_path: base('flux') });
    expect(apart(folder, checkpoint)).toBe(0);
  });

  it('has the scale of its metadata', async () => {
    const described = JSON.stringify({ 'transformer.lora_alpha': 6, 'transformer.r': 3, 'text_encoder.r': 9 });
    const { folder, checkpoint } = await foreign(
      { base_model_name_or_path: base('flux') },
      { lora_adapter_metadata: described },
    );
    const [whole, plain] = [base('flux'), checkpoint].map((one) => openFlowModel(one).weights);
    const doubled = openFlowModel(folder).weights;
    const name = 'transformer_blocks.0.attn.to_q.weight';
    const at = (weights: typeof whole): number => weights.get(name)!.data[0];
    expect(at(doubled) - at(whole)).toBeCloseTo(2 * (at(plain) - at(whole)), 5);
  });

  it.each([
    ['without a base', null, {}, undefined, 'names no base model'],
    [
      'with a broken description',
      { base_model_name_or_path: 'b' },
      { lora_adapter_metadata: '[' },
      undefined,
      'not JSON',
    ],
    [
      'of a text encoder',
      { base_model_name_or_path: 'b' },
      {},
      (name: string) => name.replace('transformer.', 'text_encoder.'),
      'not a tensor of LoRA on a transformer',
    ],
  ])('%s is rejected', async (_, beside, metadata, rename, message) => {
    const { folder } = await foreign(beside, metadata, rename);
    expect(() => openFlowModel(folder)).toThrow(message);
  });
});
