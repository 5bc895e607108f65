/** The layers that the runs of an experiment are composed of, in merge order (see snippet.ts). */
import { layersOf } from '../load.js';
import type { Layer } from '../origin.js';
import { matches, type AxisValues } from './design.js';
import type { Description } from './schema.js';

/** The layers of a cell. A config is an experiment with one cell and a null description. */
export function cellLayers(
  file: string,
  overlays: readonly string[],
  description: Description | null,
  axes: AxisValues,
): Layer[] {
  const [own, ...over] = layersOf({ file, overlays });
  if (description === null) return [own, ...over];
  const { base, overrides } = description;
  const { [base === true ? '' : base]: baseValue, ...others } = axes;
  return [
    base === true ? { name: null, file, prefix: ['base'] } : axisLayer(file, base, baseValue),
    ...over,
    ...axisLayers(file, others),
    ...overrides.flatMap(({ cell }, index) =>
      matches(axes, cell) ? [{ name: `overrides[${index}]`, file, prefix: ['overrides', 'set'] }] : [],
    ),
  ];
}

/** The layers of a run that cells start from, which only some axes reach. */
export function parentLayers(experiment: string, file: string, overlays: readonly string[], axes: AxisValues): Layer[] {
  return [...layersOf({ file, overlays }), ...axisLayers(experiment, axes)];
}

function axisLayers(file: string, axes: AxisValues): Layer[] {
  return Object.entries(axes)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([axis, value]) => axisLayer(file, axis, value));
}

function axisLayer(file: string, axis: string, value: string): Layer {
  return { name: `axis ${axis} '${value}'`, file, prefix: ['axes', axis, value] };
}
