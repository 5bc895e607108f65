import { describe, expect, it } from 'vitest';
import { decodeImage, type RgbImage } from '../../../src/core/images/image.js';
import { RandomStream } from '../../../src/core/random.js';
import type { ImagesRequest } from '../../../src/train/environments/images_api.js';
import type { NamedRequest } from '../../../src/train/environments/served.js';
import { TextPromptDrawing } from '../../../src/recipes/edit_response/drawing.js';

const plain = (width: number, height: number): RgbImage => ({
  width,
  height,
  data: new Uint8Array(3 * width * height).fill(90),
});

/** With all that it asked for; the second image of a call is refused. */
function drawingOf(size: string | null = null) {
  const asked: NamedRequest<ImagesRequest>[] = [];
  const drawing = new TextPromptDrawing(
    { size, max_pixels: 1024 },
    {
      generate: async (requests) => {
        asked.push(...requests);
        return requests.map((_, i) =>
          i === 1
            ? { kind: 'unavailable' as const, reason: 'refused' as const, detail: 'no' }
            : { kind: 'made' as const, image: plain(16, 16) },
        );
      },
      close: async () => {},
    },
  );
  return { drawing, asked };
}

describe('what a server edits by words', () => {
  it('is asked for in the words that were written, none too, at the size of the source', async () => {
    const { drawing, asked } = drawingOf();
    const source = plain(32, 16);
    const edit = { source, further: [], read: null as never, blank: null, answer: null as never };
    const drawn = await drawing.draw([
      { ...edit, key: '1/0/0', words: 'make it red', random: new RandomStream(1, 'a') },
      { ...edit, key: '1/0/1', words: '', random: new RandomStream(1, 'b') },
    ]);
    expect(drawn.map(({ image: { kind } }) => kind)).toEqual(['made', 'unavailable']);
    expect(asked.map(({ key, prompt, size }) => [key, prompt, size])).toEqual([
      ['1/0/0', 'make it red', '32x16'],
      ['1/0/1', '', '32x16'],
    ]);
    expect(asked[0].seed).not.toBe(asked[1].seed);
    expect(await decodeImage(asked[0].source!, 'source')).toEqual(source);
  });

  it('has sides of multiples of 16, and no more pixels than are allowed', () => {
    const { drawing } = drawingOf();
    const same = plain(32, 16);
    expect(drawing.fitted(same, 'a.png', 'row 1')).toBe(same);
    expect(drawing.fitted(plain(45, 30), 'a.png', 'row 1')).toMatchObject({ width: 32, height: 16 });
    expect(drawing.fitted(plain(7, 7), 'a.png', 'row 1')).toMatchObject({ width: 16, height: 16 });
  });

  it('is scaled to a size that is named, where it has its shape', () => {
    const { drawing } = drawingOf('64x32');
    expect(drawing.fitted(plain(16, 8), 'a.png', 'row 1')).toMatchObject({ width: 64, height: 32 });
    expect(() => drawing.fitted(plain(16, 16), 'a.png', 'row 1')).toThrow(
      'a.png: found 16x16 pixels; allowed: the shape of 64x32',
    );
  });
});
