import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../../src/core/errors.js';
import { encodeSafetensors, readSafetensors, type FloatTensor } from '../../../../src/core/safetensors.js';
import {
  checkEmbedder,
  checkImageEncoder,
  embedderBytes,
  openImageHalf,
  openImageEncoder,
  openTextHalf,
  imageEncoderBytes,
  imageEmbeddingWidth,
} from '../../../../src/models/networks/clip.js';
import { testFolders } from '../../../support/folder.js';

const newFolder = testFolders('embedder');
const fixtures = join(import.meta.dirname, 'fixtures');
const WEIGHTS = 'model.safetensors';

function copyOf(name: string, changes: Readonly<Record<string, unknown>> = {}): string {
  const folder = newFolder();
  cpSync(join(fixtures, name), folder, { recursive: true });
  const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as Record<string, unknown>;
  for (const [key, value] of Object.entries(changes)) {
    config[key] = { ...(config[key] as object), ...(value as object) };
  }
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config));
  return folder;
}

type Tensors = Map<string, FloatTensor>;

/** The model with other tensors. */
function withTensors(name: string, change: (tensors: Tensors) => void): string {
  const folder = copyOf(name);
  const tensors = readSafetensors(join(folder, WEIGHTS));
  change(tensors);
  writeFileSync(join(folder, WEIGHTS), encodeSafetensors(tensors));
  return folder;
}

/** The model in two files, and their index. */
function inShards(name: string): string {
  const folder = copyOf(name);
  const all = [...readSafetensors(join(folder, WEIGHTS))];
  rmSync(join(folder, WEIGHTS));
  const half = all.length / 2;
  const shards = { 'first.safetensors': all.slice(0, half), 'second.safetensors': all.slice(half) };
  const weight_map: Record<string, string> = {};
  for (const [file, tensors] of Object.entries(shards)) {
    writeFileSync(join(folder, file), encodeSafetensors(new Map(tensors)));
    for (const [tensor] of tensors) weight_map[tensor] = file;
  }
  writeFileSync(join(folder, 'model.safetensors.index.json'), JSON.stringify({ weight_map }));
  return folder;
}

/** Says the same of a folder whether it is looked at or opened. */
function expectRefused(folder: string, message: RegExp): void {
  for (const read of [checkEmbedder, () => [openTextHalf(folder, 6), openImageHalf(folder)]]) {
    expect(() => read(folder)).toThrow(CheckpointError);
    expect(() => read(folder)).toThrow(message);
  }
}

describe('the weights of a model that compares texts with images', () => {
  it('may be in shards, and not in half of them', () => {
    const folder = inShards('siglip');
    const whole = openTextHalf(join(fixtures, 'siglip'), 6).weights;
    expect(openTextHalf(folder, 6).weights).toEqual(whole);
    rmSync(join(folder, 'second.safetensors'));
    expectRefused(folder, /the index names files that are not there: second\.safetensors/);
  });

  it('are all read', () => {
    const more = { shape: [1], data: Float32Array.of(1) };
    const names = ['vision_model.embeddings.register_tokens', 'text_projection.weight', 'a', 'b'];
    const folder = withTensors('siglip', (tensors) => names.forEach((name) => tensors.set(name, more)));
    expectRefused(
      folder,
      /unused tensors: vision_model\.embeddings\.register_tokens, text_projection\.weight, a and 1 more/,
    );
  });

  it('are all there, finite, and in the shapes that the config asks for', () => {
    const probe = 'vision_model.head.probe';
    expectRefused(
      withTensors('siglip', (tensors) => tensors.delete(probe)),
      /tensor vision_model\.head\.probe is not in the file/,
    );
    expectRefused(
      copyOf('siglip', { text_config: { intermediate_size: 21 } }),
      /tensor text_model\.encoder\.layers\.0\.mlp\.fc1\.weight has shape \[20, 12\], but the config needs \[21, 12\]/,
    );
    const broken = withTensors('siglip', (tensors) => (tensors.get(probe)!.data[3] = NaN));
    expect(() => openImageHalf(broken)).toThrow(/vision_model\.head\.probe/);
  });

  it('make vectors that can be compared', () => {
    expectRefused(
      copyOf('siglip', { text_config: { projection_size: 15 } }),
      /texts have embeddings of width 15 .*, images 16/,
    );
    expectRefused(copyOf('siglip', { vision_config: { vision_use_head: false } }), /images have no embedding/);
  });

  it('of a vision half may be a whole model, or be there alone under either of the names that versions of transformers give', () => {
    const [whole, alone] = ['siglip', 'siglip_vision'].map((name) => join(fixtures, name));
    expect(imageEmbeddingWidth(checkImageEncoder(whole))).toBe(16);
    expect(openImageEncoder(whole).weights).toEqual(openImageHalf(whole).weights);
    expect(imageEmbeddingWidth(checkImageEncoder(alone))).toBe(12);
    expect(imageEmbeddingWidth(checkImageEncoder(join(fixtures, 'clip_vision')))).toBe(5);
    const prefixed = withTensors('siglip_vision', (tensors) => {
      const all = [...tensors];
      tensors.clear();
      for (const [name, tensor] of all) tensors.set(`vision_model.${name}`, tensor);
    });
    checkImageEncoder(prefixed);
    expect(openImageEncoder(prefixed).weights).toEqual(openImageEncoder(alone).weights);
    const more = { shape: [1], data: Float32Array.of(1) };
    const odd = withTensors('siglip_vision', (tensors) => tensors.set('classifier.bias', more));
    expect(() => checkImageEncoder(odd)).toThrow(/unused tensors: classifier\.bias/);
  });

  it('take what they hold as float32, those of the half that is opened second twice', () => {
    const numbers = (half: { weights: Tensors }): number =>
      [...half.weights.values()].reduce((sum, { data }) => sum + data.length, 0);
    const folder = join(fixtures, 'clip_legacy');
    const [text, picture] = [numbers(openTextHalf(folder, 7)), numbers(openImageHalf(folder))];
    expect(embedderBytes(folder)).toBe(4 * (text + 2 * picture));
    expect(imageEncoderBytes(folder)).toBe(4 * 2 * picture);
  });
});
