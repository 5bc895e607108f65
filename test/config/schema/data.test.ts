import { describe, expect, it } from 'vitest';
import { inpaintData } from '../../../src/config/schema/data.js';

const sources = { train: [{ path: 'a' }], validation: [] };

function refused(data: object): readonly { path: string; message: string }[] {
  const parsed = inpaintData.safeParse({ ...sources, ...data });
  return parsed.success ? [] : parsed.error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
}

describe('inpainting data', () => {
  it('takes its style from outside of the mask by default', () => {
    expect(inpaintData.parse(sources)).toEqual({
      dir: 'data',
      train: [{ path: 'a', coefficient: null }],
      validation: [],
      format: 'self_bench',
      resolution: null,
      style_crop: 'outside_mask',
      tiny: null,
    });
    expect(refused({ style_crop: 'corner' })).toMatchObject([{ path: 'style_crop' }]);
    expect(inpaintData.parse({ ...sources, tiny: {} }).tiny).toMatchObject({ width: 32, height: 16, letters: 3 });
  });
});
