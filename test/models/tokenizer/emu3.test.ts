import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../src/core/errors.js';
import { openTokenizer } from '../../../src/models/tokenizer/open.js';
import { emu3Folder, expectedOfEmu3 } from '../../recipes/image_edit_tokens/emu3_fixture.js';

describe("Emu3's tokenizer", () => {
  const original = openTokenizer(emu3Folder('tiktoken'));
  const converted = openTokenizer(emu3Folder('model'));

  it.each(expectedOfEmu3.texts)('gives the ids of tiktoken for $text', async ({ text, original: ids }) => {
    expect(await original.encode(text)).toEqual(ids);
    // Composed characters are one way to write those that are not.
    expect(original.decode(ids)).toBe(text.normalize('NFC'));
  });

  it.each(expectedOfEmu3.texts)('as transformers converts it gives the ids of Python for $text', async (one) => {
    expect(await converted.encode(one.text)).toEqual(one.ids);
    expect(converted.decode(one.ids)).toBe(one.decoded);
  });

  it('has the same tokens in both forms', () => {
    expect(original.size).toBe(converted.size);
    for (const token of ['<|endoftext|>', '<|extra_204|>', '<|visual token 000039|>', 'Ġthe']) {
      expect(original.id(token)).toBe(converted.id(token));
    }
    expect(original.special).toEqual({
      bos_token: '<|extra_203|>',
      eos_token: '<|extra_204|>',
      pad_token: '<|endoftext|>',
    });
  });

  describe('in files that are not whole', () => {
    const folder = mkdtempSync(join(tmpdir(), 'editrl-emu3-'));
    afterAll(() => rmSync(folder, { recursive: true }));

    it('reports which', () => {
      expect(() => openTokenizer(folder)).toThrow('there is no tokenizer; allowed: tokenizer.json');
      cpSync(emu3Folder('tiktoken'), folder, { recursive: true });
      const ranks = readFileSync(join(folder, 'emu3.tiktoken'), 'utf8').split('\n');
      ranks.splice(7, 1);
      writeFileSync(join(folder, 'emu3.tiktoken'), ranks.join('\n'));
      expect(() => openTokenizer(folder)).toThrow(CheckpointError);
      expect(() => openTokenizer(folder)).toThrow('line 8 is not a token with rank 7');
      rmSync(join(folder, 'emu3_vision_tokens.txt'));
      expect(() => openTokenizer(folder)).toThrow('allowed: tokenizer.json, emu3.tiktoken with emu3_vision_tokens.txt');
    });
  });
});
