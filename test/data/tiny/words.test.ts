import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { captionVocabulary, drawCaption, wordData, WORD_SPLITS } from '../../../src/data/tiny/words.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('words');
const sizes = { labelled: 20, train: 40, validation: 20 };
const many = 400;
const drawn = (seed: number, split: (typeof WORD_SPLITS)[number]) =>
  Array.from({ length: many }, (_, i) => drawCaption(seed, split, i));

describe('captions', () => {
  it('never share a plain caption between held-out and the others', () => {
    const plain = (split: (typeof WORD_SPLITS)[number]) =>
      new Set([3, 4].flatMap((seed) => drawn(seed, split).map(({ expected }) => expected)));
    const heldOut = plain('validation');
    for (const split of ['labelled', 'train'] as const) {
      expect([...plain(split)].filter((caption) => heldOut.has(caption))).toEqual([]);
    }
    expect(heldOut.size).toBeGreaterThan(many / 2);
  });

  it('consist of the words of the vocabulary, all of which occur', () => {
    const captions = [3, 4].flatMap((seed) => WORD_SPLITS.flatMap((split) => drawn(seed, split)));
    const words = captions.flatMap(({ prompt, expected }) => [...prompt.split(' '), ...expected.split(' ')]);
    expect([...new Set(words)].sort()).toEqual(captionVocabulary().sort());
  });

  it('say in odd words what is expected in plain ones, word for word', () => {
    const meanings = new Map<string, Set<string>>();
    for (const { prompt, expected } of drawn(3, 'train')) {
      const [odd, plain] = [prompt, expected].map((text) => text.replaceAll(/ of\b/g, '').split(' '));
      expect(odd).toHaveLength(plain.length);
      expect([odd[1], odd[2]]).not.toEqual([plain[1], plain[2]]);
      odd.forEach((word, at) => meanings.set(word, (meanings.get(word) ?? new Set()).add(plain[at])));
    }
    expect([...meanings].filter(([, plain]) => plain.size > 1)).toEqual([]);
    expect(meanings.get('west')).toEqual(new Set(['left']));
  });
});

describe('the captions on disk', () => {
  it('are what is drawn', async () => {
    const root = newFolder();
    const options = { seed: 3, sizes };
    expect(wordData.find(root, options)).toBeNull();
    await wordData.makeIn(root, options);
    const folder = wordData.find(root, options)!;
    const file = (split: string) => join(folder, 'words', `${split}.jsonl`);
    for (const split of WORD_SPLITS) {
      const rows = readFileSync(file(split), 'utf8')
        .trimEnd()
        .split('\n')
        .map((line) => JSON.parse(line) as unknown);
      expect(rows).toEqual(Array.from({ length: sizes[split] }, (_, i) => drawCaption(3, split, i)));
    }
  });
});
