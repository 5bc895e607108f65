import { cpSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { openTokenizer } from '../../../src/models/tokenizer/open.js';
import { tokenizerJson } from '../../../src/models/tokenizer/texts.js';
import { testFolders } from '../../support/folder.js';

// One vocabulary in both forms: the second is what transformers made of the first. test/fixture_scripts/sd3_pipeline.py writes them.
const [files, made] = ['tokenizer', 'tokenizer_2'].map((name) =>
  join(import.meta.dirname, '../../train/policies/flow/fixtures/sd3', name),
);
const emptyFolder = testFolders('clip-files');

it("is the tokenizer.json that transformers makes of CLIP's vocabulary and merges", () => {
  const found = JSON.parse(tokenizerJson(files) ?? 'null') as Record<string, unknown>;
  const expected = JSON.parse(readFileSync(join(made, 'tokenizer.json'), 'utf8')) as Record<string, unknown>;
  const ours = found['model'] as { merges: string[] };
  expect({ ...found, model: { ...ours, merges: ours.merges.map((pair) => pair.split(' ')) } }).toEqual({
    ...expected,
    truncation: null,
    padding: null,
    // The token that fills texts up comes from tokenizer_config.json.
    added_tokens: (expected['added_tokens'] as { readonly content: string }[]).filter(({ content }) => content !== '!'),
  });
});

it('gives the same ids', async () => {
  const folder = emptyFolder();
  cpSync(files, folder, { recursive: true });
  cpSync(join(made, 'tokenizer_config.json'), join(folder, 'tokenizer_config.json'));
  const [a, b] = [folder, made].map((one) => openTokenizer(one));
  for (const text of ['A red  door', "the naïve d'or\n2 ½", '  ', 'red<|endoftext|>red door! !']) {
    const ids = await a.encode(text, { addSpecial: true });
    expect(ids, text).toEqual(await b.encode(text, { addSpecial: true }));
    expect(ids[0]).toBe(518);
  }
  expect([a.special['pad_token'], a.id('!')]).toEqual(['!', 0]);
});

it('does not read these files so where another class does', () => {
  const folder = emptyFolder();
  cpSync(files, folder, { recursive: true });
  writeFileSync(join(folder, 'tokenizer_config.json'), JSON.stringify({ tokenizer_class: 'GPT2Tokenizer' }));
  expect(() => openTokenizer(folder)).toThrow('vocab.json with merges.txt of a CLIPTokenizer; found: vocab.json');
});

it('rejects a vocabulary without the tokens around a text, and one of another form', () => {
  const folder = emptyFolder();
  cpSync(files, folder, { recursive: true });
  writeFileSync(join(folder, 'vocab.json'), JSON.stringify({ a: 0 }));
  expect(() => openTokenizer(folder)).toThrow('there is no token <|startoftext|>');
  writeFileSync(join(folder, 'vocab.json'), '[]');
  expect(() => openTokenizer(folder)).toThrow('this is not a table of tokens and their ids');
});
