/** Checks of Emu3's parts before a run. */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { editsCheck, imageTokenizerCheck, vocabularyCheck } from '../../../src/recipes/image_edit_tokens/open.js';
import { decoderCheck } from '../../../src/recipes/shared/checks.js';
import { emu3Folder } from './emu3_fixture.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('emu3-checks');

describe("a policy of Emu3's kind", () => {
  let root: string;
  beforeEach(() => {
    root = newFolder();
    cpSync(emu3Folder(), root, { recursive: true });
  });
  const at = (...path: string[]): string => join(root, ...path);
  const vocabulary = (tokenizer: string) => vocabularyCheck(at(tokenizer), at('model'), at('model')).run;
  const edit = (file: string, change: (json: Record<string, unknown>) => void): void => {
    const json = JSON.parse(readFileSync(at(file), 'utf8')) as Record<string, unknown>;
    change(json);
    writeFileSync(at(file), JSON.stringify(json));
  };

  it('is there in both forms that are published', () => {
    expect(vocabulary('model')).not.toThrow();
    expect(vocabulary('tiktoken')).not.toThrow();
    const decoder = (contextSize: number) => decoderCheck(at('model'), { lora: null, contextSize }).run;
    expect(decoder(256)).not.toThrow();
    expect(decoder(257)).toThrow('the model has only 256 positions');
    expect(imageTokenizerCheck(at('model')).run).not.toThrow();
    expect(editsCheck(at('data', 'train')).run).not.toThrow();
  });

  it('is rejected where words, model and images do not go together', () => {
    edit('model/config.json', (json) => {
      (json['vocabulary_map'] as Record<string, number>)['<|extra_203|>'] = 7;
    });
    expect(vocabulary('tiktoken')).toThrow(
      /^the id of <\|extra_203\|> is 7 in the model's vocabulary_map and \d+ in its tokenizer$/,
    );
    edit('model/config.json', (json) => ((json['text_config'] as Record<string, number>)['vocab_size'] = 600));
    expect(vocabulary('tiktoken')).toThrow(/^the model has 600 tokens, but its tokenizer has \d+$/);
    const vision = readFileSync(at('tiktoken', 'emu3_vision_tokens.txt'), 'utf8').trim().split('\n');
    writeFileSync(at('tiktoken', 'emu3_vision_tokens.txt'), vision.reverse().join('\n'));
    expect(vocabulary('tiktoken')).toThrow('the vision tokens are not in order');
  });

  it('is rejected where a part is missing, or a sample wants to execute', () => {
    rmSync(at('model', 'preprocessor_config.json'));
    expect(imageTokenizerCheck(at('model')).run).toThrow('preprocessor_config.json');
    const hostile = join(import.meta.dirname, '../../data/fixtures/torch/hostile/os_system.pth');
    cpSync(hostile, at('data', 'train', 'train_0.pth'));
    expect(editsCheck(at('data', 'train')).run).toThrow('"posix.system"');
  });
});
