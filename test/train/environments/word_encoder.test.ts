import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError } from '../../../src/core/errors.js';
import { WORDS_FILE, WordEncoder } from '../../../src/train/environments/word_encoder.js';
import { testFolders } from '../../support/folder.js';

const folders = testFolders('image-words');
const words = new WordEncoder({ words: ['a', 'red', 'cross'], length: 4 });

/** For each token, which word it is (3 for another word, 4 for none) and then its position. */
async function said(prompt: string): Promise<(readonly [number, number])[]> {
  const { text } = await words.encode(prompt);
  return Array.from({ length: 4 }, (_, at) => {
    const row = text.subarray(at * words.width, (at + 1) * words.width);
    expect(row.reduce((sum, one) => sum + one)).toBe(2);
    return [row.indexOf(1), row.lastIndexOf(1) - 5] as const;
  });
}

describe('the words that an image model knows', () => {
  it.each([
    ['a red cross', [0, 1, 2, 4]],
    ['A Red, CROSS!', [0, 1, 2, 4]],
    ['a crimson cross', [0, 3, 2, 4]],
    ['', [4, 4, 4, 4]],
    ['red red red red red red', [1, 1, 1, 1]],
  ])('reads %j', async (prompt, ids) => {
    expect(await said(prompt)).toEqual(ids.map((id, at) => [id, at]));
  });

  it.each([
    ['a red cross a', 0],
    ['a red cross a b c', 2],
  ])('explains how many words of %j it leaves out', async (prompt, unread) => {
    expect([(await words.encode(prompt)).unread, await words.unread(prompt)]).toEqual([unread, unread]);
  });

  it('are kept in a file of the model', async () => {
    const folder = folders();
    expect(WordEncoder.in(folder)).toBeNull();
    writeFileSync(join(folder, WORDS_FILE), words.json());
    expect(await WordEncoder.in(folder)?.encode('a cross')).toEqual(await words.encode('a cross'));
    writeFileSync(join(folder, WORDS_FILE), '{"words": []}');
    expect(() => WordEncoder.in(folder)).toThrow(CheckpointError);
  });
});
