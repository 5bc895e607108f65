import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { captionedPixels, openCaptioned } from '../../../src/data/captioned.js';
import { captionedAt, CAPTIONED_SIDE, drawCaptioned, captionedData } from '../../../src/data/tiny/captioned.js';
import { PALETTE } from '../../../src/data/tiny/draw.js';
import type { Color, Relation } from '../../../src/data/tiny/world.js';
import { drawCaption, plainVocabulary } from '../../../src/data/tiny/words.js';
import { testFolders } from '../../support/folder.js';

const options = { seed: 3, sizes: { train: 24, validation: 8 } };

describe('captioned images of the tiny world', () => {
  const folder = testFolders('captioned');

  it('show each thing in its color where the caption says', () => {
    const things = [
      { colour: 'red', shape: 'square' },
      { colour: 'cyan', shape: 'cross' },
    ] as const;
    /** Where a colour is in the middle of a cell: [x, y]. */
    const placeOf = (relation: Relation, colour: Color): number[] => {
      const { data } = drawCaptioned({ things, relation });
      const cells = [0, 1, 2, 3].filter((cell) => {
        const at = 3 * ((Math.floor(cell / 2) * 8 + 4) * CAPTIONED_SIDE + (cell % 2) * 8 + 4);
        return PALETTE[colour].every((level, c) => data[at + c] === level);
      });
      expect(cells).toHaveLength(1);
      return [cells[0] % 2, Math.floor(cells[0] / 2)];
    };
    const steps = { above: [0, 1], below: [0, -1], 'left-of': [1, 0], 'right-of': [-1, 0] } as const;
    for (const [relation, step] of Object.entries(steps)) {
      const [first, second] = (['red', 'cyan'] as const).map((colour) => placeOf(relation as Relation, colour));
      expect([relation, second[0] - first[0], second[1] - first[1]]).toEqual([relation, ...step]);
    }
  });

  it('lie on disk with captions in plain words and in odd ones', async () => {
    const root = join(folder(), 'tiny');
    expect(captionedData.find(root, options)).toBeNull();
    await captionedData.makeIn(root, options);
    const made = captionedData.find(root, options)!;
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
