import { describe, expect, it } from 'vitest';
import { DataError } from '../../../src/core/errors.js';
import { BACKGROUND } from '../../../src/data/tiny/draw.js';
import { drawSign } from '../../../src/data/tiny/signs.js';

describe('word signs', () => {
  it('keep the paper around the word, whether a color or an image', () => {
    const { data } = drawSign('A', { width: 64, height: 64 });
    expect([...data.slice(0, 3)]).toEqual([...BACKGROUND]);
    const paper = { width: 64, height: 64, data: Uint8Array.from({ length: 64 * 64 * 3 }, (_, i) => i % 256) };
    const written = drawSign('A', { paper });
    expect(written.data.slice(0, 64 * 3)).toEqual(paper.data.slice(0, 64 * 3));
    expect(written.data).not.toEqual(paper.data);
    expect(paper.data[1000]).toBe(1000 % 256);
  });

  it('show a letter with the same pixels in every cell', () => {
    const { data, width } = drawSign('HAT', { size: 8, width: 32, height: 14, spacing: 'cells' });
    const other = drawSign('AHA', { size: 8, width: 32, height: 14, spacing: 'cells' });
    const cell = (pixels: Uint8Array, at: number): number[] =>
      Array.from({ length: 14 * 8 * 3 }, (_, i) => pixels[(Math.floor(i / 24) * width + 4 + 8 * at) * 3 + (i % 24)]);
    expect(cell(data, 0)).toEqual(cell(other.data, 1));
    expect(cell(data, 1)).toEqual(cell(other.data, 0));
    expect(cell(data, 1)).toEqual(cell(other.data, 2));
    expect(cell(data, 0)).not.toEqual(cell(data, 2));
  });

  it('reject what they cannot show', () => {
    expect(() => drawSign('open')).toThrow(DataError);
    expect(() => drawSign('OPEN', { width: 32, height: 64 })).toThrow(DataError);
  });
});
