import { describe, expect, it } from 'vitest';
import { encodePng, shrinkImage, type RgbImage } from '../../src/core/images/image.js';
import {
  describeOverlap,
  findOverlap,
  pixelDigest,
  type ComparedSample,
  type ComparedSet,
} from '../../src/data/overlap.js';

interface Sample {
  readonly words: string;
  /** What is shown, by its digest. */
  readonly shows?: string;
}

/** A dataset, and how often the images of its samples were looked at. */
function set(name: string, samples: readonly Sample[]): ComparedSet & { looked: number } {
  const own = {
    name,
    length: samples.length,
    looked: 0,
    at: (index: number): ComparedSample => {
      const { words, shows } = samples[index];
      const image = async (): Promise<string> => {
        own.looked += 1;
        return shows ?? '';
      };
      return { id: `#${index}`, words, image: shows === undefined ? null : image };
    },
  };
  return own;
}

const ALL = { samples: 100, images: 100 };

describe('held-out samples in the training data', () => {
  it('are those with the same words and the same image, each counted once', async () => {
    const heldOut = [
      set('a', [{ words: 'add a cat', shows: 'x' }, { words: 'add a cat', shows: 'y' }, { words: 'a dog' }]),
      set('b', [{ words: 'remove it ', shows: 'z' }, { words: 'a dog' }]),
    ];
    const training = [
      set('s', [
        { words: 'add a dog', shows: 'x' },
        { words: 'add a cat', shows: 'y' },
        { words: ' add a cat', shows: 'y' },
      ]),
      set('t', [{ words: 'remove it', shows: 'z' }, { words: 'a dog' }, { words: 'a dog', shows: 'y' }]),
    ];
    const found = await findOverlap(heldOut, training, ALL);
    expect(found).toEqual({
      found: [2, 2],
      example: { heldOut: '#1 of a', training: '#1 of s' },
      samples: { compared: 6, all: 6 },
      imagesLeft: 0,
    });
    expect(describeOverlap(found, 5)).toBe(
      '4 of 5 held-out samples are also in the training data, so held-out scores overestimate generalization: #1 of a is #1 of s',
    );
    // Pictures are opened only where the words are the same.
    expect(training.map(({ looked }) => looked)).toEqual([2, 1]);
    expect(heldOut.map(({ looked }) => looked)).toEqual([2, 1]);
  });

  it('are looked for within limits, evenly, and what is cut is reported', async () => {
    const training = set(
      't',
      Array.from({ length: 100 }, (_, i) => ({ words: `${i}` })),
    );
    const heldOut = set('h', [{ words: '90' }, { words: '91' }]);
    const found = await findOverlap([heldOut], [training], { ...ALL, samples: 10 });
    expect(found).toMatchObject({ found: [1], samples: { compared: 10, all: 100 } });
    expect(describeOverlap(found, 2)).toContain('(10 of 100 training samples were compared, spread evenly)');

    const shown = set(
      't',
      [1, 2, 3].map((i) => ({ words: 'same', shows: `${i}` })),
    );
    const unseen = await findOverlap([set('h', [{ words: 'same', shows: '3' }])], [shown], { ...ALL, images: 2 });
    expect(unseen).toMatchObject({ found: [0], example: null, imagesLeft: 1 });
    expect(describeOverlap(unseen, 1)).toBe(
      'no held-out sample was found in the training data, but the comparison is incomplete: 1 training images with the same words were not compared',
    );
  });

  it('are nothing to speak of if there are none', async () => {
    const found = await findOverlap([set('h', [{ words: 'a' }])], [set('t', [{ words: 'b' }])], ALL);
    expect(describeOverlap(found, 1)).toBeNull();
    expect(describeOverlap(await findOverlap([], [set('t', [{ words: 'b' }])], ALL), 0)).toBeNull();
  });

  it('have images that are the same by their pixels, whatever the file', async () => {
    const image: RgbImage = { width: 4, height: 2, data: Uint8Array.from({ length: 24 }, (_, i) => i * 10) };
    const png = await encodePng(image);
    // The same pixels in other chunks: a comment before the end.
    const other = Buffer.concat([png.subarray(0, png.length - 12), COMMENT, png.subarray(png.length - 12)]);
    expect(await pixelDigest(other, 'x')).toBe(await pixelDigest(png, 'x'));
    const shrunk = await encodePng(await shrinkImage(image, 2, 1));
    expect(await pixelDigest(shrunk, 'x')).not.toBe(await pixelDigest(png, 'x'));
    const turned = await encodePng({ ...image, width: 2, height: 4 });
    expect(await pixelDigest(turned, 'x')).not.toBe(await pixelDigest(png, 'x'));
  });
});

/** A chunk `tEXt` with its checksum. */
const COMMENT = Buffer.from([0, 0, 0, 3, 0x74, 0x45, 0x58, 0x74, 0x61, 0, 0x62, 0xdc, 0x49, 0xa2, 0x3b]);
