import { expect, it } from 'vitest';
import { parseAddedTokens } from '../../../src/models/tokenizer/texts.js';

it('takes an added token for normalized if it does not say so, unless it is special: as tokenizers does', () => {
  const added_tokens = [
    { content: 'word' },
    { content: '<s>', special: true },
    { content: 'as it stands', normalized: false },
    { content: '<both>', special: true, normalized: true },
  ];
  expect(parseAddedTokens({ added_tokens }, 'tokenizer.json').map(({ normalized }) => normalized)).toEqual([
    true,
    false,
    false,
    true,
  ]);
});
