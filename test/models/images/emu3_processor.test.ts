import { createHash } from 'node:crypto';
import { cpSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { CheckpointError, DataError } from '../../../src/core/errors.js';
import type { RgbImage } from '../../../src/core/images/image.js';
import { fitImage, fromNetwork, readEmu3Processor, toNetwork } from '../../../src/models/images/emu3_processor.js';
import { testFolders } from '../../support/folder.js';

const newFolder = testFolders('emu3-processor');
const fixtures = join(import.meta.dirname, '../../compute/nets/emu3_vision/fixtures');
const FILE = 'preprocessor_config.json';

interface Processed {
  readonly width: number;
  readonly height: number;
  readonly fitted: { readonly width: number; readonly height: number };
  readonly values: string;
  readonly returned: string;
}

const picture = (width: number, height: number): RgbImage => ({
  width,
  height,
  data: Uint8Array.from({ length: 3 * width * height }, (_, i) => (i * 7919) % 256),
});
const digest = ({ buffer, byteOffset, byteLength }: Float32Array | Uint8Array): string =>
  createHash('sha256')
    .update(new Uint8Array(buffer, byteOffset, byteLength))
    .digest('hex');

/** A folder of these settings. */
function folderOf(json: object, name = FILE): string {
  const folder = newFolder();
  writeFileSync(join(folder, name), JSON.stringify(json));
  return folder;
}
const read = (json: object, patch = 8) => readEmu3Processor(folderOf(json), patch);
const byBaai = { auto_map: { AutoImageProcessor: 'BAAI/x--image_processing_emu3visionvq.Emu3VisionVQImageProcessor' } };

describe.each(['published', 'transformers'])('the processor in the folder of %s names', (name) => {
  const folder = join(fixtures, name);
  const processor = readEmu3Processor(folder, 2);
  const all = JSON.parse(readFileSync(join(folder, 'processed.json'), 'utf8')) as readonly Processed[];

  it.each(all)("makes of $width x $height pixels the numbers of transformers', and images of them", (wanted) => {
    const fitted = fitImage(processor, picture(wanted.width, wanted.height), 'here');
    expect({ width: fitted.width, height: fitted.height }).toEqual(wanted.fitted);
    const values = toNetwork(processor.levels, fitted);
    expect(digest(values)).toBe(wanted.values);
    const moved = values.map((value) => Math.fround(Math.fround(value * Math.fround(1.1)) + Math.fround(0.01)));
    expect(digest(fromNetwork(processor.levels, moved, fitted).data)).toBe(wanted.returned);
  });

  it('is in the file of a whole processor, too', () => {
    const nested = newFolder();
    const json = JSON.parse(readFileSync(join(folder, FILE), 'utf8')) as object;
    writeFileSync(join(nested, 'processor_config.json'), JSON.stringify({ image_processor: json, ratio: '1:1' }));
    expect(readEmu3Processor(nested, 2)).toEqual(processor);
  });
});

describe('what a file leaves out', () => {
  it("is what BAAI's code or transformers' takes, by whose the file is", () => {
    const size = { factor: 8, limits: { min_pixels: 512 ** 2, max_pixels: 1024 ** 2 } };
    const half = { scale: 1 / 255, mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] };
    const own = { levels: half, size: { ...size, longest: 5, least: 8 } };
    expect(read({ image_processor_type: 'Emu3VisionVQImageProcessor' })).toEqual(own);
    expect(read({ ...byBaai, image_processor_type: 'Emu3ImageProcessor' })).toEqual(own);
    const clip = { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] };
    expect(read({ image_processor_type: 'Emu3ImageProcessor' })).toEqual({
      levels: { scale: 1 / 255, ...clip },
      size: { ...size, longest: 200, least: 1 },
    });
  });

  it("is in `size` where a later version of transformers' wrote the file, unless limits stand beside it", () => {
    const json = { image_processor_type: 'Emu3ImageProcessor', size: { shortest_edge: 256, longest_edge: 2048 } };
    expect(read(json).size?.limits).toEqual({ min_pixels: 256, max_pixels: 2048 });
    expect(read({ ...json, max_pixels: 4096 }).size?.limits).toEqual({ min_pixels: 256, max_pixels: 4096 });
    // Earlier ones do not read what stands there.
    const earlier = read({ ...json, size: { min_pixels: 256, max_pixels: 2048 } });
    expect(earlier.size?.limits).toEqual({ min_pixels: 512 ** 2, max_pixels: 1024 ** 2 });
  });

  it('is the size where images stay as they are', () => {
    const processor = read({ ...byBaai, do_resize: false, spatial_factor: 7 });
    expect(processor.size).toBeNull();
    const given = picture(5, 3);
    expect(fitImage(processor, given, 'here')).toBe(given);
  });
});

describe('an image', () => {
  it('is rejected where it is too long or too small for those who made the processor', () => {
    const own = read(byBaai);
    expect(() => fitImage(own, picture(48, 8), 'line 3')).toThrow(DataError);
    expect(() => fitImage(own, picture(48, 8), 'line 3')).toThrow(
      'found an image of 48x8 pixels; allowed: sides with a ratio of at most 5',
    );
    expect(() => fitImage(own, picture(9, 7), 'line 3')).toThrow(
      'found an image of 9x7 pixels; allowed: at least 8 a side',
    );
    const theirs = read({ image_processor_type: 'Emu3ImageProcessor' });
    expect(() => fitImage(theirs, picture(201, 1), 'line 3')).toThrow('allowed: sides with a ratio of at most 200');
  });
});

describe('a file', () => {
  it.each<[object, string]>([
    [
      { image_processor_type: 'CLIPImageProcessor' },
      "image_processor_type: only Emu3's image processors are available",
    ],
    [{ do_rescale: false }, 'do_rescale: only true is supported'],
    [{ do_normalize: false }, 'do_normalize: only true is supported'],
    [{ resample: 2 }, 'resample: only 3 (bicubic) is available'],
    [{ image_std: [0.5, 0, 0.5] }, 'image_std.1: '],
    [{ size: { height: 512, width: 512 } }, 'size: only {min_pixels, max_pixels} and'],
    [{ do_center_crop: true }, 'do_center_crop: true: the key is unknown, so its effect on images is not supported'],
    [{ spatial_factor: 12 }, 'spatial_factor is 12, but a code covers squares of 8 pixels'],
  ])('is rejected with %j', (json, message) => {
    expect(() => read(json)).toThrow(CheckpointError);
    expect(() => read(json)).toThrow(message);
  });

  it('is needed', () => {
    const folder = newFolder();
    expect(() => readEmu3Processor(folder, 8)).toThrow('there is no preprocessor_config.json');
    cpSync(folderOf({ tokenizer: 1 }, 'processor_config.json'), folder, { recursive: true });
    expect(() => readEmu3Processor(folder, 8)).toThrow('there is no preprocessor_config.json');
    renameSync(join(folder, 'processor_config.json'), join(folder, FILE));
    expect(() => readEmu3Processor(folder, 8)).toThrow(
      'tokenizer: 1: the key is unknown, so its effect on images is not supported',
    );
  });
});
