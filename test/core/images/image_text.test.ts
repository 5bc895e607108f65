/** Images as texts. */
import { expect, it } from 'vitest';
import { base64Bytes, isBase64 } from '../../../src/core/images/image_text.js';
import { RandomStream } from '../../../src/core/random.js';

it.each(['', 'QQ==', 'QUI=', 'QUJD', '+/+/'])('reads base64: %j', (text) => {
  expect(base64Bytes(text)).toEqual(Buffer.from(text, 'base64'));
});

it.each([
  ['without its padding', 'QQ'],
  ['with padding amidst', 'QQ==QUJD'],
  ['with too much padding', 'QUJD===='],
  ['with bits that say nothing', 'QR=='],
  ['with such bits, one letter less', 'QUJ='],
  ['in the letters of URLs', '-_-_'],
  ['with a line break', 'QUJD\nQUJ'],
  ['with a blank', 'QUJ QUJD'],
  ['with a letter whose number ends as that of A', 'QUJ\u0141'],
  ['with an accent', 'QUJ\u00e9'],
])('is null for base64 %s', (_what, text) => {
  expect(base64Bytes(text)).toBeNull();
});

it('takes a text where writing its bytes again gives it, and no other', () => {
  const random = new RandomStream(1, 'base64');
  const letters = [
    'A',
    'B',
    'Q',
    'R',
    'g',
    'z',
    '9',
    '+',
    '/',
    '=',
    '=',
    '-',
    '_',
    ' ',
    '\n',
    '\u00e9',
    '\u0141',
    '\u{1F600}',
  ];
  for (let i = 0; i < 50_000; i++) {
    const text = Array.from({ length: random.integer(13) }, () => letters[random.integer(letters.length)]).join('');
    const bytes = Buffer.from(text, 'base64');
    const isCanonical = bytes.toString('base64') === text;
    expect(isBase64(text), JSON.stringify(text)).toBe(isCanonical);
  }
});
