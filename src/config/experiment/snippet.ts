/** The Jsonnet expressions that make the settings of a matrix: all cells in one evaluation, and one more per generation of parents. */
import { overlayOf, withoutReach } from '../inherit.js';
import { importOf } from '../jsonnet.js';

/** Native function through which the evaluation asks for the cells, once it knows the names of axes and values. */
export const PLAN = 'editrl.plan';

/** The result of that function. */
export interface EvaluationPlan {
  /** Overlays, as the table of the snippet names them. */
  readonly overlays: readonly string[];
  /** The cells to evaluate whole. */
  readonly cells: readonly CellOrder[];
  /** A cell of every base, to find out which sections there are, if tables are wanted; else empty. */
  readonly probes: readonly CellOrder[];
  /** The fields that the values of each axis set, hidden ones too. */
  readonly fields: Readonly<Record<string, readonly string[]>>;
}

export interface CellOrder {
  /** Null keeps the name in the settings. */
  readonly name: string | null;
  /** Index of the mixin that is the base, among all values of all axes in the order of their names; null if all cells share one base. */
  readonly base: number | null;
  /** The mixins to add, in order. */
  readonly mixins: readonly number[];
  /** Indices of the overrides to add, in order. */
  readonly overrides: readonly number[];
}

/** Native function through which the evaluation reports, as JSON, which sections there are; returns the first table to evaluate, or null. */
export const TABLES = 'editrl.tables';
/** Native function that receives evaluated rows as JSON; returns the next table to evaluate, or null. */
export const NEXT_TABLE_FUNCTION = 'editrl.worked_out';
/** Native function through which the evaluation reports that a section read a watched axis. */
export const SECTION_READ_FUNCTION = 'editrl.touched';

/** One section of the settings, to be evaluated for several combinations of axis values. */
export interface TableOrder {
  readonly section: string;
  /** Whether every row has the section; else each is checked. */
  readonly sure: boolean;
  /** Parts that are not plain mixins, by index: -1 is the first, -2 the second, … */
  readonly parts: readonly Part[];
  /** What rows share: a base (null, and its mixin or null), or an earlier node and the part added to it. */
  readonly nodes: readonly (readonly [number | null, number | null])[];
  /** For every row its node, and the part added last: the index of a mixin, or of one of `parts`. */
  readonly rows: readonly number[];
  readonly lasts: readonly number[];
  /** The name of every row; a single name if reading it is watched. */
  readonly names: readonly string[];
  readonly watchName: boolean;
}

/** A mixin (null for an empty one), and its axis if the fields that it sets are watched instead of set; else null. */
export type Part = readonly [number | null, string | null];

export interface ParentOrder {
  readonly name: string;
  readonly file: string;
  readonly mixins: readonly (readonly [string, string])[];
}

/**
 * Mixins are merged before anything is manifested and the name comes last, so that everything that refers to them sees them. Evaluates to the cells
 * of the plan; the tables of sections that it asks for are handed over along the way (see sections.ts).
 *
 * Jsonnet re-evaluates an object's field at every access, but an array's element only once, so what many cells use is kept in arrays. These are made
 * by `std.map`, because a comprehension copies all previous elements for each one that it adds.
 */
export function matrixSnippet(file: string, overlays: readonly string[]): string {
  return `local e = ${importOf(file)};
local overlays = ${tableOf(overlays)};
local fields = std.objectFieldsEx, has = std.objectHasEx, type = std.type, length = std.length;
local kinds = { array: 'a list', string: 'a string', number: 'a number', boolean: 'true or false', 'null': 'null', 'function': 'a function' };
local fieldsOf(v) = local t = type(v); if t == 'object' then fields(v, true) else kinds[t];
local shownOf(v) = if type(v) == 'object' then length(fields(v, false)) else 0;
local axisNames = if std.isObject(e) && std.objectHas(e, 'axes') && std.isObject(e.axes) then std.objectFields(e.axes) else [];
local axes = std.map(
  function(name)
    local axis = e.axes[name];
    local names = if std.isObject(axis) then std.objectFields(axis) else kinds[std.type(axis)];
    [names, if std.isObject(axis) then std.makeArray(length(names), function(i) axis[names[i]]) else []],
  axisNames
);
local each(f, values) = std.makeArray(length(values), function(i) f(values[i]));
local valuesOf(axis) = if std.isArray(axis[0]) then [axis[0], each(fieldsOf, axis[1]), each(shownOf, axis[1])] else axis[0];
local described = if !std.isObject(e) then kinds[std.type(e)] else {
  [k]:
    if k == 'base' && std.isObject(e.base) then true
    else if k == 'axes' && std.isObject(e.axes) then { [axisNames[i]]: valuesOf(axes[i]) for i in std.range(0, std.length(axes) - 1) }
    else if k == 'overrides' && std.isArray(e.overrides) then [
      if std.isObject(o) then { [f]: if f == 'set' then fieldsOf(o.set) else o[f] for f in std.objectFields(o) } else o
      for o in e.overrides
    ]
    else e[k]
  for k in std.objectFields(e)
};
local plan = std.native('${PLAN}')(std.toString(described));
local overlaid(config) = std.foldl(function(all, path) all + overlays[path], plan.overlays, config) + ${withoutReach};
local plain = overlaid(if std.objectHas(e, 'base') then e.base else e);
local mixins = std.flattenArrays(std.map(function(axis) axis[1], axes));
local bases = std.map(overlaid, mixins);
local overrides = if std.objectHas(e, 'overrides') then [o.set for o in e.overrides] else [];
local add(settings, index) = settings + mixins[index];
local named(settings, name) = settings + (if name == null then {} else { run_name: name });
local baseOf(base) = if base == null then plain else bases[base];
local cell(c) = named(
  std.foldl(
    function(settings, index) settings + overrides[index],
    c.overrides,
    std.foldl(add, c.mixins, baseOf(c.base))
  ),
  c.name
);
local touched(section, axis) = std.native('${SECTION_READ_FUNCTION}')(section + ' ' + axis);
local watch(mixin, section, axis) =
  local watched(f) = { [f]: if touched(section, axis) then (if f in super then super[f] else mixin[f]) };
  local fields = plan.fields[axis];
  std.foldl(function(all, f) all + watched(f), fields[1:], watched(fields[0]));
local table(t) =
  local section = t.section, names = t.names, rows = t.rows, lasts = t.lasts;
  local parts = std.map(
    function(p)
      local mixin = if p[0] == null then {} else mixins[p[0]];
      if p[1] == null then mixin else watch(mixin, section, p[1]),
    t.parts
  );
  local part(place) = if place < 0 then parts[-1 - place] else mixins[place];
  local nodes = std.map(function(n) if n[0] == null then baseOf(n[1]) else nodes[n[0]] + part(n[1]), t.nodes);
  local watched = { run_name: if touched(section, 'run_name') then names[0] else null };
  local settingsOf = if t.watchName
    then function(i) nodes[rows[i]] + part(lasts[i]) + watched
    else function(i) nodes[rows[i]] + part(lasts[i]) + { run_name: names[i] };
  local rowOf = if t.sure
    then function(i) [settingsOf(i)[section]]
    else function(i) local settings = settingsOf(i); if has(settings, section, false) then [settings[section]] else [];
  std.makeArray(std.length(rows), rowOf);
local tables = if plan.probes == [] then null else std.native('${TABLES}')(std.toString({
  sections: std.set(std.flattenArrays([std.objectFields(cell(c)) for c in plan.probes])),
  bases: [[fields(baseOf(c.base), hidden) for hidden in [true, false]] for c in plan.probes],
}));
local workOut(order) =
  if order == null then true else workOut(std.native('${NEXT_TABLE_FUNCTION}')(std.toString(table(order)))) tailstrict;
{ cells: std.map(cell, plan.cells), done: workOut(tables) }`;
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
local with = ${[...overlays.map((path) => overlayOf(path, true)), withoutReach].join(' + ')};
[
${made.join(',\n')}
]`;
}

/** For each of the given axes, every field that each of the given values sets by itself, including hidden ones. */
export function ownFieldsSnippet(file: string, wanted: readonly (readonly [string, readonly string[]])[]): string {
  return `local e = ${importOf(file)};
local own(v) = if std.isObject(v) then { [k]: own(v[k]) for k in std.objectFieldsAll(v) } else if std.isFunction(v) then 'a function' else v;
local ownOf(axis, values) = std.map(function(v) own(axis[v]), values);
[${wanted.map(([axis, values]) => `ownOf(e.axes[${JSON.stringify(axis)}], ${JSON.stringify(values)})`).join(', ')}]`;
}

function tableOf(overlays: readonly string[]): string {
  return `{ ${overlays.map((path) => `${JSON.stringify(path)}: ${overlayOf(path, false)}`).join(', ')} }`;
}
