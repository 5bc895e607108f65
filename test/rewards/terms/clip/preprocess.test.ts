import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { ConfigError } from '../../../../src/core/errors.js';
import { decodeImage, sha256, type RgbImage } from '../../../../src/core/images/image.js';
import {
  cropToModel,
  preprocess,
  readPreprocessing,
  type Preprocessing,
} from '../../../../src/rewards/terms/clip/preprocess.js';
import { testFolders } from '../../../support/folder.js';
import { drawPicture, fixture, fixtures, tinyClip, type Picture } from './pictures.js';

const newFolder = testFolders('clip');

interface PixelCase extends Picture {
  readonly settings: Readonly<Record<string, unknown>>;
  readonly levels: string;
  readonly values_sha256: string;
}

/** What a folder with this file asks for. */
function steps(config: unknown, name = 'preprocessor_config.json'): Preprocessing {
  const folder = newFolder();
  writeFileSync(join(folder, name), typeof config === 'string' ? config : JSON.stringify(config));
  return readPreprocessing(folder);
}

function flat(width: number, height: number, level = 200): RgbImage {
  return { width, height, data: new Uint8Array(width * height * 3).fill(level) };
}

describe('CLIP preprocessing', () => {
  const cases = fixture<readonly PixelCase[]>('pixels.json').map(
    (one) => [`${one.width}x${one.height} ${one.kind} ${JSON.stringify(one.settings)}`, one] as const,
  );

  it.each(cases)("gives Pillow's levels: %s", async (_name, { settings, levels, ...picture }) => {
    const ours = cropToModel(drawPicture(picture), steps(settings));
    const theirs = await decodeImage(readFileSync(join(fixtures, levels)), levels);
    expect([ours.width, ours.height]).toEqual([theirs.width, theirs.height]);
    const differences = Array.from(ours.data, (level, i) => Math.abs(level - theirs.data[i]));
    expect(differences.reduce((sum, difference) => sum + difference, 0) / differences.length).toBeLessThan(0.5);
    expect(Math.max(...new Set(differences))).toBe(0);
  });

  it.each(cases)(
    "gives transformers' float32 values, bit for bit: %s",
    (_name, { settings, values_sha256, ...picture }) => {
      const values = preprocess(drawPicture(picture), steps(settings));
      expect(sha256(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))).toBe(values_sha256);
    },
  );

  it('costs little for an image of an absurd shape', () => {
    for (const image of [flat(10_000, 1), flat(1, 10_000)]) {
      expect(new Set(cropToModel(image, steps({})).data)).toEqual(new Set([200]));
    }
  });

  it('takes the defaults of clip-vit-base-patch32', () => {
    expect(steps({})).toEqual({
      resize: { shortestEdge: 224 },
      filter: 'cubic',
      crop: { width: 224, height: 224 },
      scale: 1 / 255,
      normalize: { mean: [0.48145466, 0.4578275, 0.40821073], std: [0.26862954, 0.26130258, 0.27577711] },
    });
  });

  it('reads sizes in every form that exports have', () => {
    expect(steps({ size: 336, crop_size: 336 })).toEqual(
      steps({ size: { shortest_edge: 336 }, crop_size: { height: 336, width: 336 } }),
    );
    expect(steps({ image_processor: { size: 336, crop_size: 336 } }, 'processor_config.json')).toMatchObject({
      resize: { shortestEdge: 336 },
    });
    expect(steps({ size: { height: 40, width: 50 }, do_center_crop: false }).crop).toEqual({ width: 50, height: 40 });
    expect(readPreprocessing(tinyClip).crop).toEqual({ width: 32, height: 32 });
  });

  it('leaves out the steps that the file switches off', () => {
    const off = steps({ do_resize: false, crop_size: 2, do_rescale: false, do_normalize: false });
    expect(off).toMatchObject({ resize: null, scale: null, normalize: null });
    expect([...preprocess(flat(3, 1), off)]).toEqual(Array.from({ length: 3 }, () => [0, 0, 200, 200]).flat());
  });

  it.each([
    ['another filter', { resample: 2 }, /bicubic/],
    ['no fixed size', { do_center_crop: false }, /any shape/],
    ['a size of nothing', { size: 0 }, /size/],
    ['two channels', { image_mean: [0, 0] }, /image_mean/],
    ['no JSON', '{', /JSON/],
  ])('rejects %s', (_name, config, message) => {
    expect(() => steps(config)).toThrow(ConfigError);
    expect(() => steps(config)).toThrow(message);
  });

  it.each([
    [{ do_pad: true, pad_size: 3 }, /do_pad: true: this step is not known/],
    [{ crop_pct: 0.9 }, /crop_pct: 0\.9: this step/],
    [{ image_processor_type: 'Siglip2ImageProcessor' }, /only the image processors of CLIP and SigLIP are available/],
    [{ feature_extractor_type: 'ViTFeatureExtractor' }, /only the image processors of CLIP and SigLIP are available/],
    [{ resample: 2 }, /only 3 \(bicubic\)/],
  ])('rejects %j, which it would do otherwise than the model was trained', (config, message) => {
    expect(() => steps(config)).toThrow(message);
    expect(() => steps({ image_processor: config }, 'processor_config.json')).toThrow(message);
  });

  it('passes over what has no say in the pixels', () => {
    const plain = {
      do_convert_rgb: true,
      feature_extractor_type: 'CLIPFeatureExtractor',
      data_format: 'channels_first',
    };
    expect(steps({ ...plain, do_pad: false, pad_size: null })).toEqual(steps({}));
  });

  const siglips = fixture<readonly Omit<PixelCase, 'levels'>[]>('siglip_pixels.json').map(
    (one) => [`${one.width}x${one.height} ${one.kind} ${JSON.stringify(one.settings['resample'])}`, one] as const,
  );

  it.each(siglips)(
    "gives transformers' float32 values by SigLIP's processor, bit for bit: %s",
    (_name, { settings, values_sha256, ...picture }) => {
      const values = preprocess(drawPicture(picture), steps(settings));
      expect(sha256(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))).toBe(values_sha256);
    },
  );

  it("takes SigLIP's own defaults, also where they are written as null", () => {
    const plain = {
      resize: { width: 224, height: 224 },
      filter: 'cubic',
      crop: { width: 224, height: 224 },
      scale: 1 / 255,
      normalize: { mean: [0.5, 0.5, 0.5], std: [0.5, 0.5, 0.5] },
    };
    expect(steps({ image_processor_type: 'SiglipImageProcessorFast' })).toEqual(plain);
    const written = { do_center_crop: null, crop_size: null, do_convert_rgb: null, resample: null, image_mean: null };
    expect(steps({ image_processor_type: 'SiglipImageProcessor', ...written })).toEqual(plain);
  });

  it('rejects a folder without the file', () => {
    expect(() => readPreprocessing(fixtures)).toThrow(/no preprocessor_config\.json/);
  });
});
