import { describe, expect, it } from 'vitest';
import { inpaintData } from '../../../src/config/schema/data.js';

const sources = { train: [{ path: 'a' }], validation: [] };

function refused(data: object): readonly { path: string; message: string }[] {
  const parsed = inpaintData.safeParse({ ...sources, ...data });
  return parsed.success ? [] : parsed.error.issues.map(({ path, message }) => ({ path: path.join('.'), message }));
}

describe('inpainting data', () => {
  it('takes its style from outside of the mask unless it is told otherwise', () => {
    expect(inpaintData.parse(sources)).toEqual({
      dir: 'data',
      train: [{ path: 'a', coefficient: null }],
      validation: [],
      format: 'self_bench',
      resolution: null,
      style_crop: { kind: 'outside_mask' },
      tiny: null,
    });
    const box = { kind: 'box', left: 0.5, top: 0, width: 0.5, height: 1 };
    expect(inpaintData.parse({ ...sources, style_crop: box }).style_crop).toEqual(box);
    expect(inpaintData.parse({ ...sources, style_crop: { kind: 'whole' } }).style_crop).toEqual({ kind: 'whole' });
  });

  it('refuses a box that leaves the picture, and one of no size', () => {
    const box = (changes: object) => ({
      style_crop: { kind: 'box', left: 0.5, top: 0.5, width: 0.5, height: 0.5, ...changes },
    });
    expect(refused(box({}))).toEqual([]);
    expect(refused(box({ width: 0.6 }))).toMatchObject([{ path: 'style_crop.width' }]);
    expect(refused(box({ top: 0.7 }))).toMatchObject([{ path: 'style_crop.height' }]);
    expect(refused(box({ height: 0 }))).toMatchObject([{ path: 'style_crop.height' }]);
    expect(refused({ style_crop: { kind: 'corner' } })).toMatchObject([{ path: 'style_crop.kind' }]);
  });

  it('has letters of the tiny world that differ', () => {
    expect(inpaintData.parse({ ...sources, tiny: {} }).tiny).toMatchObject({ width: 32, height: 16, letters: 3 });
    expect(refused({ tiny: { alphabet: 'AbC' } })).toMatchObject([{ path: 'tiny.alphabet' }]);
    expect(refused({ tiny: { alphabet: 'ABA' } })).toMatchObject([{ path: 'tiny.alphabet' }]);
  });
});
