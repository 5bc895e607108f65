import { cpSync, existsSync, lstatSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { relabelEmu3 } from '../../scripts/relabel_emu3.js';
import { openDecoder } from '../../src/models/networks/decoder.js';
import { testFolders } from '../support/folder.js';

const FIXTURES = join(import.meta.dirname, '../compute/nets/decoder/fixtures');
const folders = testFolders('relabel');

describe('a decoder of Emu3', () => {
  it.each(['emu3_text_model', 'Emu3'])('is the same model as a Llama: %s', (type) => {
    const [folder, out] = [join(folders(), 'emu3'), join(folders(), 'llama')];
    cpSync(join(FIXTURES, 'emu3_text'), folder, { recursive: true });
    const file = join(folder, 'config.json');
    const json = JSON.parse(readFileSync(file, 'utf8')) as object;
    writeFileSync(
      file,
      JSON.stringify({ ...json, model_type: type, auto_map: { AutoConfig: 'configuration_emu3.Emu3Config' } }),
    );
    writeFileSync(join(folder, 'modeling_emu3.py'), '');
    writeFileSync(join(folder, 'generation_config.json'), '{"eos_token_id": 2}');
    relabelEmu3(folder, out);
    const written = JSON.parse(readFileSync(join(out, 'config.json'), 'utf8')) as object;
    expect(written).toMatchObject({
      model_type: 'llama',
      architectures: ['LlamaForCausalLM'],
      rope_theta: 1_000_000,
      vocab_size: 61,
    });
    expect(written).not.toHaveProperty('auto_map');
    expect(openDecoder(out)).toMatchObject(openDecoder(folder));
    expect([...openDecoder(out).weights]).toEqual([...openDecoder(folder).weights]);
    expect(lstatSync(join(out, 'model.safetensors')).isSymbolicLink()).toBe(true);
    expect(readFileSync(join(out, 'generation_config.json'), 'utf8')).toBe('{"eos_token_id": 2}');
    expect(existsSync(join(out, 'modeling_emu3.py'))).toBe(false);
    expect(() => relabelEmu3(folder, out)).toThrow(/already exists/);
  });

  it('is not any other model', () => {
    expect(() => relabelEmu3(join(FIXTURES, 'qwen3'), join(folders(), 'out'))).toThrow(
      /found model_type "qwen3"; allowed: Emu3, emu3_text_model/,
    );
  });
});
