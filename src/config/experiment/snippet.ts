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
  /** The cells to evaluate whole. */
  readonly cells: readonly CellOrder[];
  /** A cell of every base, to show which sections there are, where tables of them are wanted; else none. */
  readonly probes: readonly CellOrder[];
  /** The fields that the values of each axis set, hidden ones too. */
  readonly fields: Readonly<Record<string, readonly string[]>>;
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

/** The function through which the evaluation asks which sections to work out for which values of the axes. */
export const TABLES = 'editrl.tables';
/** The function to which the evaluation gives these, as JSON; it answers which have to be worked out again. */
export const WORKED_OUT = 'editrl.worked_out';
/** The function through which the evaluation tells that a section of the settings read a watched axis. */
export const TOUCHED = 'editrl.touched';

/** One section of the settings, to be worked out for several combinations of axis values. */
export interface TableOrder {
  readonly section: string;
  readonly rows: readonly RowOrder[];
}

export interface RowOrder {
  readonly base: number | null;
  /** In order: a mixin (null for an empty one), and its axis where the fields that this sets are watched, else null. */
  readonly parts: readonly (readonly [number | null, string | null])[];
  readonly name: string;
  readonly watchName: boolean;
}

export interface ParentOrder {
  readonly name: string;
  readonly file: string;
  readonly mixins: readonly (readonly [string, string])[];
}

/**
 * Mixins are merged before anything is manifested and the name comes last, so that whatever refers to them follows. They are taken
 * from the axes once, into arrays: Jsonnet evaluates an object's field anew at every access, an array's element only once.
 * It evaluates to the cells that the plan asks for; the tables of sections that it asks for are handed over on the way (see sections.ts).
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
local named(settings, name) = settings + (if name == null then {} else { run_name: name });
local baseOf(c) = if c.base == null then plain else bases[c.base];
local cell(c) = named(
  std.foldl(
    function(settings, index) settings + overrides[index],
    c.overrides,
    std.foldl(add, c.mixins, baseOf(c))
  ),
  c.name
);
local touched(section, axis) = std.native('${TOUCHED}')(section + ' ' + axis);
local part(p, section) =
  (if p[0] == null then {} else mixins[p[0]])
  + if p[1] == null then {} else { [f]: if touched(section, p[1]) then super[f] else null for f in plan.fields[p[1]] };
local row(r, section) =
  std.foldl(function(settings, p) settings + part(p, section), r.parts, baseOf(r))
  + { run_name: if !r.watchName || touched(section, 'run_name') then r.name else null };
local sectionOf(settings, section) = if std.objectHas(settings, section) then [settings[section]] else [];
local tables = if plan.probes == [] then [] else std.native('${TABLES}')(std.toString({
  sections: std.set(std.flattenArrays([std.objectFields(cell(c)) for c in plan.probes])),
  bases: [std.objectFieldsAll(baseOf(c)) for c in plan.probes],
}));
local rowsOf(orders) = std.toString([[sectionOf(row(r, t.section), t.section) for r in t.rows] for t in orders]);
local workOut(orders) = orders == [] || workOut(std.native('${WORKED_OUT}')(rowsOf(orders)));
{ cells: [cell(c) for c in plan.cells], done: workOut(tables) }`;
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
