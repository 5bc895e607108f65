/** Settings that a run recorded before they said how pictures become squares, confidences one number, and what reward servers speak. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { resultHash } from '../../../src/config/hash.js';
import type { IpAdapterSettings } from '../../../src/recipes/ip_adapter/schema.js';
import { ipAdapter } from '../../../src/recipes/ip_adapter/settings.js';
import { fillAbsent } from '../../../src/schema/absent.js';

const recorded = JSON.parse(
  readFileSync(new URL('./fixtures/recorded.json', import.meta.url), 'utf8'),
) as IpAdapterSettings;

describe('a recorded run of ip_adapter', () => {
  it('goes on as it was, under the same hash', () => {
    const settings = fillAbsent(ipAdapter.schema, recorded);
    expect(settings.data.resolution).toBeNull();
    expect(settings.reward.terms).toMatchObject([
      { name: 'ocr_confidence', confidence: 'by_length' },
      { name: 'remote', protocol: 'editrl' },
    ]);
    // As the program computed it that recorded these settings.
    expect(resultHash(settings)).toBe('fae47243a4e978834f5c39eb65904e214e9bd7d9acb4d7ad35510ccae9461931');
    const begun = ipAdapter.schema.parse({ ...recorded, reward: { terms: [{ name: 'ocr_confidence', weight: 1 }] } });
    expect(begun).toMatchObject({ reward: { terms: [{ confidence: 'mean' }] } });
  });
});
