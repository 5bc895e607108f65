import { expect, it } from 'vitest';
import { adapterOf } from '../../../src/compute/nets/lora.js';

it('takes a pattern as one that a whole name matches, whichever of its alternatives does', () => {
  const linear = ['layers.0.q_proj.weight', 'layers.0.q_proj_extra.weight', 'other.v_proj.weight'];
  const layersOf = (targets: string) => [
    ...adapterOf({ rank: 2, alpha: 2, rslora: false, targets }, linear, 'head').layers,
  ];
  expect(layersOf(String.raw`layers\.0\.q_proj|v_proj`)).toEqual(['layers.0.q_proj']);
  expect(layersOf(String.raw`.*q_proj|.*v_proj`)).toEqual(['layers.0.q_proj', 'other.v_proj']);
});
