import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readPrice } from '../../src/train/prices.js';
import { testFolders } from '../support/folder.js';

const folders = testFolders('prices');

function file(content: string): string {
  const path = join(folders(), 'prices.json');
  writeFileSync(path, content);
  return path;
}

const list = { currency: 'USD', models: { 'Qwen/Qwen3-8B': { prefill: 0.13, sample: 0.4, train: 0.5 } } };

it('is the price of one model', () => {
  expect(readPrice(file(JSON.stringify(list)), 'Qwen/Qwen3-8B')).toEqual({
    currency: 'USD',
    perMillion: { prefill: 0.13, sampled: 0.4, trained: 0.5 },
  });
});

it.each([
  ['no JSON', '{currency}', /found no JSON/],
  ['a negative price', JSON.stringify(list).replace('0.4', '-1'), /models\.Qwen\/Qwen3-8B\.sample: /],
  ['a price too few', JSON.stringify(list).replace('"sample":0.4,', ''), /models\.Qwen\/Qwen3-8B\.sample: /],
  ['a key that it does not know', JSON.stringify({ ...list, per: 1000 }), /per/],
  [
    'no price of the model',
    JSON.stringify({ ...list, models: { other: list.models['Qwen/Qwen3-8B'] } }),
    /no price of Qwen\/Qwen3-8B; there are prices of other/,
  ],
])('is refused where the file has %s', (_, content, message) => {
  const path = file(content);
  expect(() => readPrice(path, 'Qwen/Qwen3-8B')).toThrow(
    expect.objectContaining({ code: 'config', where: path, message: expect.stringMatching(message) as string }),
  );
});

it('is refused where there is no file', () => {
  expect(() => readPrice(join(folders(), 'none.json'), 'any')).toThrow(/policy\.trainer\.prices: cannot be read/);
});
