import { describe, expect, it } from 'vitest';
import type { EditSample } from '../../../src/data/types.js';
import { checkMasks, regionsOf } from '../../../src/recipes/image_edit_tokens/open.js';
import { smallSpace } from '../../policies/small_policy.js';

const grid = { height: 1, width: 2, codes: Int32Array.of(0, 1) };
const sample: EditSample = {
  ...{ id: 'a', instruction: 'x', source: grid, sourcePng: null, target: null, targetPng: null, rationale: null },
  mask: Uint8Array.of(0, 1),
};
const advantage = { region: 'mask', region_share: 0.5, region_border: 0 } as const;

/** Its samples; an Error is raised where it is read. */
function taskOf(...samples: readonly (EditSample | Error)[]) {
  const read = (index: number): EditSample => {
    const found = samples[index];
    if (found instanceof Error) throw found;
    return found;
  };
  return { space: smallSpace(), data: { train: [{ length: samples.length, read }] } };
}

describe("regions of the data's masks", () => {
  it("are each sample's own; one without a mask has none", () => {
    const regions = regionsOf(taskOf(sample, { ...sample, mask: null }), advantage);
    expect(regions.labelled?.({ sample } as never)).toEqual(Uint8Array.of(0, 1));
    expect(regions.labelled?.({ sample: { ...sample, mask: null } } as never)).toBeNull();
  });

  it('are refused before training where the first sample has no mask, or any mask is wrong', async () => {
    expect(() => regionsOf(taskOf({ ...sample, mask: null }, sample), advantage)).toThrow(/found no mask/);
    await expect(checkMasks(taskOf(sample, new Error('an empty mask')))).rejects.toThrow('an empty mask');
    await checkMasks(taskOf(sample, { ...sample, mask: null }));
  });
});
