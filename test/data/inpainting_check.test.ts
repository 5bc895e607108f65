/** What is found wrong with samples before a run, without decoding their pictures. */
import { describe, expect, it } from 'vitest';
import sharp from 'sharp';
import { encodePlainPng } from '../../src/core/images/png.js';
import { checkSamples } from '../../src/data/inpainting.js';
import { readSelfBench, wholeList } from '../../src/data/self_bench.js';
import { testFolders } from '../support/folder.js';
import { maskOf, writeBench } from './bench.js';
import { plain } from './image_files.js';

const newFolder = testFolders('inpainting-look');

function said(changes: Readonly<Record<string, Uint8Array | string>>, side?: number): string[] {
  const list = readSelfBench(writeBench(newFolder(), changes));
  return checkSamples(list, side).map((problem) => problem.toText());
}

/** As many programs save masks: one channel. */
function greyPng(levels: readonly number[]): Promise<Buffer> {
  return sharp(Uint8Array.from(levels), { raw: { width: 6, height: 4, channels: 1 } })
    .toColourspace('b-w')
    .png({ palette: false })
    .toBuffer();
}

describe('a look at samples', () => {
  it('finds nothing wrong with whole ones', async () => {
    const grey = await greyPng(Array.from({ length: 24 }, (_, at) => (at === 9 ? 255 : 0)));
    expect(grey[25]).toBe(0);
    expect(said({ '2_mask.png': grey }, 2)).toEqual([]);
  });

  it('lists all that is wrong at once', async () => {
    const found = said(
      {
        '1_source.png': '',
        '2_mask.png': plain(6, 4, [0, 0, 0]),
        '2_ref.png': plain(6, 5, [1, 1, 1]),
        '12_mask.png': await greyPng(Array.from({ length: 24 }, (_, at) => at)),
      },
      4,
    );
    expect(found).toEqual([
      expect.stringMatching(/1_source\.png: is not an image: it has 0 bytes/),
      expect.stringMatching(/2_source\.png: the images of sample 2 differ in size: source 6x4, mask 6x4, ref 6x5/),
      expect.stringMatching(/2_ref\.png: an image of 6x5 pixels is not a multiple of the patch size 4/),
      expect.stringMatching(/2_mask\.png: the mask is empty/),
      expect.stringMatching(/12_ref\.png: an image of 6x4 pixels is not a multiple of the patch size 4/),
      expect.stringMatching(/12_mask\.png: the mask is not binary: 23 of its 24 pixels/),
    ]);
  });

  it('leaves to who decodes it what is no PNG', async () => {
    const jpeg = await sharp(plain(6, 4, [9, 9, 9]))
      .jpeg()
      .toBuffer();
    expect(said({ '2_source.png': jpeg }, 2)).toEqual([]);
  });

  it('is reported with the facts from file names', () => {
    const folder = writeBench(newFolder(), {
      '2_mask.png': encodePlainPng(maskOf(() => true, 254)),
      'self_bench.txt': '1 a\n2 b\n3 c\n',
    });
    const look = () => wholeList(folder, undefined, (list) => checkSamples(list));
    expect(look).toThrow(/4 problems found.*sample 3 has no 3_source\.png.*the mask is not binary/s);
  });
});
