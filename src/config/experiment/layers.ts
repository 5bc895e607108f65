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
  const [, ...over] = layersOf({ file, overlays }, false);
  if (description === null) return layersOf({ file, overlays }, false);
  const { base, overrides } = description;
  const field = (name: string, path: string): Layer => ({
    name,
    file,
    expression: (imported) => `${imported(file)}${path}`,
  });
  return [
    base === true ? { ...field('base', '.base'), name: null } : axisLayer(file, base, axes[base]),
    ...over,
    ...axisLayers(file, base === true ? axes : without(axes, base)),
    ...overrides.flatMap(({ cell }, index) =>
      matches(axes, cell) ? [field(`overrides[${index}]`, `.overrides[${index}].set`)] : [],
    ),
  ];
}

/** The layers of a run that cells start from, which only some axes reach. */
export function parentLayers(experiment: string, file: string, overlays: readonly string[], axes: AxisValues): Layer[] {
  return [...layersOf({ file, overlays }, true), ...axisLayers(experiment, axes)];
}

function axisLayers(file: string, axes: AxisValues): Layer[] {
  return Object.entries(axes)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([axis, value]) => axisLayer(file, axis, value));
}

function axisLayer(file: string, axis: string, value: string): Layer {
  return {
    name: `axis ${axis} '${value}'`,
    file,
    expression: (imported) => `${imported(file)}.axes[${JSON.stringify(axis)}][${JSON.stringify(value)}]`,
  };
}

function without(axes: AxisValues, axis: string): AxisValues {
  return Object.fromEntries(Object.entries(axes).filter(([name]) => name !== axis));
}
