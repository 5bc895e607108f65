import { describe, expect, it } from 'vitest';
import type { RgbImage } from '../../../src/core/images/image.js';
import { encodeLetters, encodeStyle } from '../../../src/recipes/ip_adapter/conditions.js';
import { letterWidth, styleWidth } from '../../../src/recipes/ip_adapter/settings.js';

describe('encodeLetters', () => {
  it('reports which letter stands at which place, and if none does', () => {
    const found = encodeLetters('a sign that says "B7"', 3, 'here');
    const width = letterWidth(3);
    expect(found).toHaveLength(3 * width);
    const ones = [...found].flatMap((value, at) => (value === 1 ? [`${Math.floor(at / width)} ${at % width}`] : []));
    // B is the second letter, 7 the eighth digit after 26 letters, 36 no letter; then the places.
    expect(ones).toEqual(['0 1', '0 37', '1 33', '1 38', '2 36', '2 39']);
  });

  it.each([
    ['a sign that says "ABCD"', "'ABCD' has 4 letters; the model reads 3"],
    ['a sign that says "A-B"', 'the prompt quotes "-"; allowed: letters and digits'],
    ['a sign', 'the prompt quotes no text'],
  ])('rejects %s', (prompt, message) => {
    expect(() => encodeLetters(prompt, 3, 'here')).toThrow(message);
  });
});

const image = (width: number, height: number, at: (x: number, y: number, c: number) => number): RgbImage => ({
  width,
  height,
  data: Uint8Array.from({ length: width * height * 3 }, (_, i) =>
    at(Math.floor(i / 3) % width, Math.floor(i / 3 / width), i % 3),
  ),
});

describe('encodeStyle', () => {
  it('averages an image of any size down to a square', () => {
    const left = encodeStyle(image(32, 4, (x, _y, c) => (c === 0 && x < 16 ? 255 : 0)));
    expect(left).toHaveLength(styleWidth);
    // Rows of four places of three channels: red on the left half.
    expect([...left.subarray(0, 12)]).toEqual([1, -1, -1, 1, -1, -1, -1, -1, -1, -1, -1, -1]);
    const small = encodeStyle(image(2, 1, () => 51));
    small.forEach((value) => expect(value).toBeCloseTo(-0.6, 6));
  });
});
