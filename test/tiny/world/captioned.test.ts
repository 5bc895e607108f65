import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { captionedPixels, openCaptioned } from '../../../src/data/captioned.js';
import {
  captionedAt,
  CAPTIONED_SIDE,
  drawCaptioned,
  makeTinyCaptioned,
  tinyCaptioned,
} from '../../../src/tiny/world/captioned.js';
import { PALETTE } from '../../../src/tiny/world/draw.js';
import { drawCaption, plainVocabulary } from '../../../src/tiny/world/words.js';
import { testFolders } from '../../support/folder.js';

const options = { seed: 3, sizes: { train: 24, validation: 8 } };

describe('captioned pictures of the tiny world', () => {
  const folder = testFolders('captioned');

  it('show each thing in its colour where the caption says', () => {
    const things = [
      { colour: 'red', shape: 'square' },
      { colour: 'cyan', shape: 'cross' },
    ] as const;
    const centre = (relation: 'above' | 'right-of', cell: number): number[] => {
      const { data } = drawCaptioned({ things, relation });
      const [x, y] = [(cell % 2) * 8 + 4, Math.floor(cell / 2) * 8 + 4];
      return [...data.subarray(3 * (y * CAPTIONED_SIDE + x), 3 * (y * CAPTIONED_SIDE + x) + 3)];
    };
    expect(centre('above', 0)).toEqual([...PALETTE.red]);
    expect(centre('above', 2)).toEqual([...PALETTE.cyan]);
    expect(centre('right-of', 1)).toEqual([...PALETTE.red]);
    expect(centre('right-of', 0)).toEqual([...PALETTE.cyan]);
  });

  it('lie on disk with captions in plain words and in odd ones', async () => {
    const root = join(folder(), 'tiny');
    expect(tinyCaptioned(root, options)).toBeNull();
    await makeTinyCaptioned(root, options);
    const made = tinyCaptioned(root, options)!;
    const [plain, odd] = await Promise.all(
      ['plain', 'odd'].map((list) => openCaptioned(join(made, 'captioned/train', `${list}.jsonl`))),
    );
    expect([plain.length, odd.length]).toEqual([24, 24]);
    const known = new Set(plainVocabulary());
    for (let i = 0; i < 24; i++) {
      const caption = captionedAt(3, 'train', i);
      expect([plain.read(i).text, odd.read(i).text]).toEqual([caption.expected, caption.prompt]);
      expect(
        plain
          .read(i)
          .text.split(' ')
          .every((word) => known.has(word)),
      ).toBe(true);
      expect(plain.read(i).path).toBe(odd.read(i).path);
    }
    expect((await captionedPixels(plain.read(5))).data).toEqual(drawCaptioned(captionedAt(3, 'train', 5)).data);
    expect(existsSync(join(root, 'captioned/validation/7.png'))).toBe(true);
    expect(readFileSync(join(made, 'made.json'), 'utf8')).toContain('"captioned"');
  });

  it('never show in training what is held out, of prompts either', () => {
    const heldOut = new Set(Array.from({ length: 300 }, (_, i) => drawCaption(42, 'validation', i).expected));
    for (let i = 0; i < 600; i++) expect(heldOut.has(captionedAt(7, 'train', i).expected)).toBe(false);
  });
});
