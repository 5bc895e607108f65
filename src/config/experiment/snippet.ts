/** The Jsonnet expressions that make the settings of a matrix: all cells in one evaluation, one more per generation of parents. */
import { importOf } from '../jsonnet.js';
import type { AxisValues } from './design.js';

/** The function through which the evaluation asks which cells there are, once it knows the names of axes and values. */
export const PLAN = 'editrl.plan';

/** What that function answers. */
export interface EvaluationPlan {
  /** Overlays, as the table of the snippet names them. */
  readonly overlays: readonly string[];
  /** Axis and value of every mixin that a cell refers to, by its place here. */
  readonly mixins: readonly (readonly [string, string])[];
  readonly cells: readonly CellOrder[];
}

export interface CellOrder {
  /** Null keeps the name that the settings have. */
  readonly name: string | null;
  /** The mixin that is the base; null where the experiment has one for all cells. */
  readonly base: number | null;
  /** The mixins to add, in order. */
  readonly mixins: readonly number[];
  /** Indices of the overrides to add, in order. */
  readonly overrides: readonly number[];
}

export interface ParentOrder {
  readonly name: string;
  readonly file: string;
  readonly mixins: readonly (readonly [string, string])[];
}

/**
 * Mixins are merged before anything is manifested and the name comes last, so that whatever refers to them follows. They are taken
 * from the axes once, into arrays: Jsonnet evaluates an object's field anew at every access, an array's element only once.
 */
export function matrixSnippet(file: string, overlays: readonly string[]): string {
  return `local e = ${importOf(file)};
local overlays = ${tableOf(overlays)};
local fieldsOf(v) = if std.isObject(v) then std.objectFieldsAll(v) else std.type(v);
local valuesOf(axis) = if std.isObject(axis) then { [v]: fieldsOf(axis[v]) for v in std.objectFields(axis) } else std.type(axis);
local described = if !std.isObject(e) then std.type(e) else {
  [k]:
    if k == 'base' && std.isObject(e.base) then true
    else if k == 'axes' && std.isObject(e.axes) then { [a]: valuesOf(e.axes[a]) for a in std.objectFields(e.axes) }
    else if k == 'overrides' && std.isArray(e.overrides) then [
      if std.isObject(o) then { [f]: o[f] for f in std.objectFields(o) if f != 'set' } else o
      for o in e.overrides
    ]
    else e[k]
  for k in std.objectFields(e)
};
local plan = std.native('${PLAN}')(std.toString(described));
local with = std.foldl(function(all, path) all + overlays[path], plan.overlays, {});
local plain = (if std.objectHas(e, 'base') then e.base else e) + with;
local mixins = [e.axes[m[0]][m[1]] for m in plan.mixins];
local bases = [mixin + with for mixin in mixins];
local overrides = if std.objectHas(e, 'overrides') then [o.set for o in e.overrides] else [];
local add(settings, index) = settings + mixins[index];
[
  std.foldl(
    function(settings, index) settings + overrides[index],
    c.overrides,
    std.foldl(add, c.mixins, if c.base == null then plain else bases[c.base])
  ) + (if c.name == null then {} else { run_name: c.name })
  for c in plan.cells
]`;
}

/** Parents are made from their own configs, with the overlays and the axes that reach them. */
export function parentsSnippet(file: string, overlays: readonly string[], parents: readonly ParentOrder[]): string {
  const made = parents.map(({ name, file: config, mixins }) =>
    [
      importOf(config),
      'with',
      ...mixins.map(([axis, value]) => `e.axes[${JSON.stringify(axis)}][${JSON.stringify(value)}]`),
      `{ run_name: ${JSON.stringify(name)} }`,
    ].join(' + '),
  );
  return `local e = ${importOf(file)};
local with = ${['{}', ...overlays.map(importOf)].join(' + ')};
[
${made.join(',\n')}
]`;
}

/** Every field that the values of axes set by themselves, hidden ones too; in the order of the values. */
export function ownFieldsSnippet(file: string, cell: readonly AxisValues[]): string {
  const values = cell.flatMap((part) => Object.entries(part));
  const own = values.map(([axis, value]) => `own(e.axes[${JSON.stringify(axis)}][${JSON.stringify(value)}])`);
  return `local e = ${importOf(file)};
local own(v) = if std.isObject(v) then { [k]: own(v[k]) for k in std.objectFieldsAll(v) } else if std.isFunction(v) then 'a function' else v;
[${own.join(', ')}]`;
}

function tableOf(overlays: readonly string[]): string {
  return `{ ${overlays.map((path) => `${JSON.stringify(path)}: ${importOf(path)}`).join(', ')} }`;
}
