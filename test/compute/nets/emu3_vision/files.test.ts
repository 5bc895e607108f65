import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { must } from '../../../../src/core/errors.js';
import { encodeSafetensors, readSafetensors, type FloatTensor } from '../../../../src/core/safetensors.js';
import { readConfig } from '../../../../src/models/files.js';
import { checkEmu3Vision, openEmu3Vision } from '../../../../src/models/networks/emu3_vision.js';
import { emu3Folder } from '../../../recipes/image_edit_tokens/emu3_fixture.js';
import { testFolders } from '../../../support/folder.js';

const newFolder = testFolders('emu3-vision-files');
const fixtures = join(import.meta.dirname, 'fixtures');
const WEIGHTS = 'model.safetensors';
type Tensors = Map<string, FloatTensor>;

const check = (folder: string) => checkEmu3Vision(folder, readConfig(folder));
const open = (folder: string) => openEmu3Vision(folder, readConfig(folder));
/** The tensors of a fixture but for the counts, which are whole numbers. */
function tensorsOf(folder: string): Tensors {
  const names = [...open(folder).weights.keys()];
  const prefix = folder.startsWith(emu3Folder()) ? 'vqmodel.' : '';
  return readSafetensors(
    join(folder, WEIGHTS),
    names.map((name) => prefix + name),
  );
}

/** A fixture with other tensors. */
function withTensors(name: string, change: (tensors: Tensors) => void): string {
  const folder = newFolder();
  cpSync(join(fixtures, name), folder, { recursive: true });
  const tensors = tensorsOf(folder);
  change(tensors);
  writeFileSync(join(folder, WEIGHTS), encodeSafetensors(tensors));
  return folder;
}

describe.each(['published', 'transformers'])("a folder of %s' names", (name) => {
  const folder = join(fixtures, name);

  it('is read with every tensor under its own name', () => {
    const { config, weights } = open(folder);
    expect(check(folder)).toEqual(config);
    const stored = readSafetensors(join(folder, WEIGHTS), [...weights.keys()]);
    expect([...weights].map(([key, { shape }]) => [key, shape])).toEqual(
      [...weights.keys()].map((key) => [key, must(stored.get(key), key).shape]),
    );
  });

  it('is rejected with a tensor that nothing reads, one that is missing, and one of another shape', () => {
    const extra = withTensors(name, (tensors) => {
      tensors.set('decoder.conv_out.lora', { shape: [1], data: new Float32Array(1) });
    });
    const missing = withTensors(name, (tensors) => void tensors.delete('quantize.embedding.weight'));
    const other = withTensors(name, (tensors) => {
      tensors.set('quant_conv.conv.bias', { shape: [3], data: new Float32Array(3) });
    });
    for (const read of [check, open]) {
      expect(() => read(extra)).toThrow('unused tensors: decoder.conv_out.lora');
      expect(() => read(missing)).toThrow('tensor quantize.embedding.weight is not in the file');
      expect(() => read(other)).toThrow('tensor quant_conv.conv.bias has shape [3], but the config needs');
    }
  });

  it('is rejected without weights', () => {
    const empty = newFolder();
    cpSync(folder, empty, { recursive: true });
    rmSync(join(empty, WEIGHTS));
    expect(() => check(empty)).toThrow('there are no weights');
  });
});

describe('within an Emu3', () => {
  const folder = emu3Folder('model');

  it("is read in transformers' names, and the language model is passed over", () => {
    expect(check(folder)).toEqual(open(folder).config);
    expect([...open(folder).weights.keys()]).toContain('encoder.middle_block.attn_norm.weight');
  });

  /** The Emu3 with the names of its image tokenizer's tensors changed. */
  function renamed(change: (name: string) => string): string {
    const out = newFolder();
    const json = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as object;
    writeFileSync(join(out, 'config.json'), JSON.stringify({ ...json, vocabulary_map: {} }));
    const tensors: Tensors = new Map([['text_model.norm.weight', { shape: [1], data: new Float32Array(1) }]]);
    for (const [name, tensor] of tensorsOf(folder)) tensors.set(change(name), tensor);
    writeFileSync(join(out, WEIGHTS), encodeSafetensors(tensors));
    return out;
  }

  it('is read under the names of other versions of transformers', () => {
    const earlier = renamed((name) => `model.${name}`);
    expect(open(earlier).weights).toEqual(open(folder).weights);
  });

  it('is rejected where the file holds none, and for tensors under its prefix that nothing reads', () => {
    const without = renamed((name) => name.replace('vqmodel', 'vision'));
    expect(() => check(without)).toThrow('this Emu3 has no image tokenizer');
    const more = renamed((name) => name.replace('quant_conv.conv.bias', 'quant_conv.conv.offset'));
    expect(() => check(more)).toThrow(/unused tensors: vqmodel\.(post_)?quant_conv\.conv\.offset/);
  });
});
