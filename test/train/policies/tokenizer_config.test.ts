import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { completeTokenizerConfig } from '../../../src/models/adapters/export.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('tokenizer-config');
const tokenizer = {
  added_tokens: [
    { id: 1, content: '<|end|>', special: true },
    { id: 2, content: '<|pad|>', special: true },
  ],
  model: { type: 'WordLevel', vocab: { '<|unk|>': 0, red: 3 }, unk_token: '<|unk|>' },
};

function completed(files: Readonly<Record<string, object>>): unknown {
  const folder = newFolder();
  for (const [name, json] of Object.entries(files)) writeFileSync(join(folder, name), JSON.stringify(json));
  completeTokenizerConfig(folder, [folder]);
  const file = join(folder, 'tokenizer_config.json');
  return existsSync(file) ? (JSON.parse(readFileSync(file, 'utf8')) as unknown) : null;
}

it('names the end of the generation settings, which fills up too if nothing else does', () => {
  const made = { tokenizer_class: 'PreTrainedTokenizerFast', eos_token: '<|end|>' };
  const ends = { eos_token_id: [1, 2] };
  const files = { 'tokenizer.json': tokenizer };
  expect(completed({ ...files, 'generation_config.json': ends })).toEqual({ ...made, pad_token: '<|end|>' });
  expect(completed({ ...files, 'generation_config.json': { ...ends, pad_token_id: 2 } })).toEqual({
    ...made,
    pad_token: '<|pad|>',
  });
  expect(completed({ ...files, 'config.json': { eos_token_id: 1 } })).toEqual({ ...made, pad_token: '<|end|>' });
  const seeing = { text_config: { eos_token_id: 1, pad_token_id: 2 } };
  expect(completed({ ...files, 'config.json': seeing })).toEqual({ ...made, pad_token: '<|pad|>' });
});

it('adds to what the folder says, and changes nothing of it', () => {
  const own = { eos_token: 'red', pad_token: null, chat_template: '{{ messages }}', model_max_length: 8 };
  const files = { 'tokenizer.json': tokenizer, 'generation_config.json': { eos_token_id: 1, pad_token_id: 2 } };
  expect(completed({ ...files, 'tokenizer_config.json': own })).toEqual({ ...own, pad_token: '<|pad|>' });
});

it('is not made if there is no tokenizer, or nothing is known of its ends', () => {
  expect(completed({ 'generation_config.json': { eos_token_id: 1 } })).toBeNull();
  expect(completed({ 'tokenizer.json': tokenizer })).toBeNull();
});
