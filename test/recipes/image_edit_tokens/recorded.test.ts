/** Settings that a run recorded before they said when the part of a source is drawn. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { diffSettings, resultHash } from '../../../src/config/hash.js';
import { imageEditTokens, type ImageEditSettings } from '../../../src/recipes/image_edit_tokens/settings.js';
import { fillAbsent } from '../../../src/schema/absent.js';

const recorded = JSON.parse(
  readFileSync(new URL('./fixtures/recorded.json', import.meta.url), 'utf8'),
) as ImageEditSettings;

describe('a recorded run of image_edit_tokens', () => {
  it('draws the part of a source anew in each epoch, under the same hash', () => {
    const settings = fillAbsent(imageEditTokens.schema, recorded);
    expect(settings.data.subset).toBe('each_epoch');
    // As the program computed it that recorded these settings.
    expect(resultHash(settings)).toBe('87e41cbc0c333e488287442412780a17eee949e77b8464c9e8996e66086b8884');
    expect(imageEditTokens.schema.parse(recorded)).toMatchObject({ data: { subset: 'once' } });
  });

  it('is the run of a config of today where no part of a source is taken', () => {
    const changed = (coefficient: number | null): string[] => {
      const train = recorded.data.train.map(({ path }) => ({ path, coefficient }));
      const before = fillAbsent(imageEditTokens.schema, { ...recorded, data: { ...recorded.data, train } });
      const today = { ...before, data: { ...before.data, subset: 'once' as const } };
      return diffSettings(before, today).map(({ key }) => key);
    };
    expect(changed(null)).toEqual([]);
    expect(changed(2)).toEqual([]);
    expect(changed(0.5)).toEqual(['data.subset']);
  });
});
