import { describe, expect, it } from 'vitest';
import { drawnCells, labelledCells, maskedCells } from '../../../src/recipes/image_edit_tokens/drawn_cells.js';
import type { CodeGrid } from '../../../src/data/types.js';
import { SAMPLED, smallSpace } from '../../policies/small_policy.js';

const source: CodeGrid = { height: 2, width: 3, codes: Int32Array.of(0, 1, 2, 3, 0, 1) };
const edited: CodeGrid = { height: 2, width: 3, codes: Int32Array.of(0, 1, 3, 3, 0, 0) };

describe.each([
  ['forced', undefined],
  ['sampled', SAMPLED],
] as const)('cells of an answer with a %s header', (_, forms) => {
  const space = smallSpace(forms);

  it.each([
    ['inside the image', true, []],
    ['with words before it', false, [1, 2, 1]],
  ] as const)('are where its codes are, %s', (_, imageOpen, words) => {
    const ids = Int32Array.from(space.answer(edited, words, imageOpen));
    const found = drawnCells({ sample: { source }, tokens: { imageOpen } }, { ids }, space);
    const codes: number[] = [];
    found?.ofAction?.forEach((cell, t) => {
      if (cell >= 0) codes[cell] = ids[t] - space.visionStart;
      expect(space.isVision(ids[t])).toBe(cell >= 0);
    });
    expect(codes).toEqual([...edited.codes]);
    expect([...(found?.changed ?? [])]).toEqual([0, 0, 1, 0, 0, 1]);
  });

  it('are none without a whole image, or with one of another size', () => {
    const prompt = { sample: { source }, tokens: { imageOpen: true } };
    const ids = Int32Array.from(space.answer(edited, [], true));
    expect(drawnCells(prompt, { ids: ids.subarray(0, ids.length - 4) }, space)).toBeNull();
    const other = { height: 3, width: 2, codes: source.codes };
    expect(drawnCells({ ...prompt, sample: { source: other } }, { ids }, space)).toBeNull();
  });
});

describe('masked cells', () => {
  it("are the sample's mask, which it has to have", () => {
    expect(maskedCells({ id: 'a', mask: Uint8Array.of(0, 1) })).toEqual(Uint8Array.of(0, 1));
    expect(() => maskedCells({ id: 'a', mask: null })).toThrow(
      /found no mask, where algorithm.advantage.region is 'mask'/,
    );
  });
});

describe('labelled cells', () => {
  it('are where the label differs from the source', () => {
    expect([...labelledCells({ id: 'a', source, target: edited })]).toEqual([0, 0, 1, 0, 0, 1]);
  });

  it('need a label of the size of its source', () => {
    expect(() => labelledCells({ id: 'a', source, target: null })).toThrow(
      /found no labelled edit for a source of 2x3, where algorithm.advantage.region is 'label'/,
    );
    const other = { height: 3, width: 2, codes: source.codes };
    expect(() => labelledCells({ id: 'a', source, target: other })).toThrow(/found a labelled edit of 3x2 codes/);
  });
});
