/** The Jsonnet expressions that make the settings of a matrix: what the experiment says, its cells, and its parents. */
import { overlayOf, withoutReach } from '../inherit.js';
import { importOf } from '../jsonnet.js';

/** The parts of a cell that are merged over its base, in order, and its name; null for a config, which is a cell as it is. */
export interface CellOrder {
  readonly name: string | null;
  /** The value that is the base; null if all cells share one base. */
  readonly base: AxisValue | null;
  readonly values: readonly AxisValue[];
  /** Indices of overrides. */
  readonly overrides: readonly number[];
}

type AxisValue = readonly [axis: string, value: string];

export interface ParentOrder {
  readonly name: string;
  readonly file: string;
  readonly mixins: readonly AxisValue[];
}

/**
 * An experiment without its settings: of each axis the names of its values with their fields, and of each override the fields. null for a file that
 * has none of the given keys, which is a config; the name of its type for a file that is no object.
 */
export function descriptionSnippet(file: string, keys: readonly string[]): string {
  return `local e = ${importOf(file)};
local kinds = { array: 'a list', string: 'a string', number: 'a number', boolean: 'true or false', 'null': 'null', 'function': 'a function' };
local fieldsOf(v) = if std.isObject(v) then std.objectFieldsEx(v, true) else kinds[std.type(v)];
local valuesOf(axis) = if std.isObject(axis) then [[name, fieldsOf(axis[name])] for name in std.objectFields(axis)] else kinds[std.type(axis)];
if !std.isObject(e) then kinds[std.type(e)]
else if !std.foldl(function(any, key) any || std.objectHas(e, key), ${JSON.stringify(keys)}, false) then null
else {
  [k]:
    if k == 'base' && std.isObject(e.base) then true
    else if k == 'axes' && std.isObject(e.axes) then { pairs: [[name, valuesOf(e.axes[name])] for name in std.objectFields(e.axes)] }
    else if k == 'overrides' && std.isArray(e.overrides) then [
      if std.isObject(o) then { [f]: if f == 'set' then fieldsOf(o.set) else o[f] for f in std.objectFields(o) } else o
      for o in e.overrides
    ]
    else e[k]
  for k in std.objectFields(e)
}`;
}

/**
 * Cells as a list. Their parts are merged before anything is manifested and the name comes last, so that everything that refers to them sees them.
 * Jsonnet evaluates an object's field at every access, but an array's element once, so the parts that cells share are kept in arrays.
 */
export function cellsSnippet(file: string, overlays: readonly string[], cells: readonly CellOrder[]): string {
  const parts = new Map<string, number>();
  const partOf = (expression: string): string => {
    const place = parts.get(expression) ?? parts.size;
    parts.set(expression, place);
    return `parts[${place}]`;
  };
  const made = cells.map(({ name, base, values, overrides }) =>
    [
      partOf(`${base !== null ? valueOf(base) : name === null ? 'e' : 'e.base'} + over`),
      ...values.map((value) => partOf(valueOf(value))),
      ...overrides.map((index) => partOf(`e.overrides[${index}].set`)),
      ...(name === null ? [] : [`{ run_name: ${JSON.stringify(name)} }`]),
    ].join(' + '),
  );
  return `local e = ${importOf(file)};
local over = ${[...overlays.map((path) => overlayOf(path, false)), withoutReach].join(' + ')};
local parts = [
${[...parts.keys()].map((part) => `(${part})`).join(',\n')}
];
[
${made.join(',\n')}
]`;
}

/** Parents are made from their own configs, with the overlays and the axes that reach them. */
export function parentsSnippet(file: string, overlays: readonly string[], parents: readonly ParentOrder[]): string {
  const made = parents.map(({ name, file: config, mixins }) =>
    [importOf(config), 'with', ...mixins.map(valueOf), `{ run_name: ${JSON.stringify(name)} }`].join(' + '),
  );
  return `local e = ${importOf(file)};
local with = ${[...overlays.map((path) => overlayOf(path, true)), withoutReach].join(' + ')};
[
${made.join(',\n')}
]`;
}

function valueOf([axis, value]: AxisValue): string {
  return `e.axes[${JSON.stringify(axis)}][${JSON.stringify(value)}]`;
}
