/** Evaluates an experiment file to named cells. */
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { ConfigError } from '../../core/errors.js';
import { displayPath, evaluateSnippet, fileStem, importOf, type Environment } from '../jsonnet.js';
import { problemsOf } from '../problems.js';
import { rewardForms } from '../recipes.js';
import { isObject } from '../../core/schema/walk.js';
import { checkNamePart, designCells, matches, type AxisValues, type NamedCell } from './design.js';
import { descriptionSchema, type Description } from './schema.js';
import { overlayOf, withoutReach } from '../references.js';

/** The cells of a matrix, with their values. */
export interface Matrix {
  readonly name: string;
  /** Null for a config. */
  readonly description: Description | null;
  readonly overlays: readonly string[];
  readonly named: readonly { readonly axes: AxisValues }[];
  readonly value: readonly Record<string, unknown>[];
  readonly sources: ReadonlyMap<string, string>;
  readonly importHash: string;
}

/** Evaluates an experiment twice: for its description, and for all cells at once. Raises ConfigError. */
export async function evaluateMatrix(
  file: string,
  given: readonly string[],
  environment: Environment,
): Promise<Matrix> {
  const keys = Object.keys(descriptionSchema().shape);
  const described = await evaluateSnippet({
    file,
    roots: [file, ...given],
    snippet: descriptionSnippet(file, keys),
    environment,
  });
  const { description, named, orders } = inFile(file, () => planCells(described.value, file));
  const name = description?.name ?? fileStem(file);
  const own = (description?.with ?? []).map((path) => resolve(dirname(file), path));
  const missing = own.find((path) => !existsSync(path));
  if (missing !== undefined) {
    throw new ConfigError(`with: no such file: ${displayPath(missing)}`, {
      where: file,
      next: 'Overlays are relative to the experiment file.',
    });
  }
  const overlays = [...own, ...given.map((path) => resolve(path))];
  const { value, sources, importHash } = await evaluateSnippet({
    file,
    roots: [file, ...overlays],
    snippet: cellsSnippet(file, overlays, orders),
    environment,
  });
  return { name, description, overlays, named, value: value as Record<string, unknown>[], sources, importHash };
}

interface Planned {
  readonly description: Description | null;
  readonly named: readonly { readonly axes: AxisValues }[];
  readonly orders: readonly CellOrder[];
}

/** The cells of an experiment's description. Raises ConfigError for an invalid description. */
function planCells(described: unknown, file: string): Planned {
  if (described === null) {
    return {
      description: null,
      named: [{ axes: {} }],
      orders: [{ name: null, base: null, values: [], overrides: [] }],
    };
  }
  const description = readDescription(withAxes(described), file);
  const name = description.name ?? fileStem(file);
  checkNamePart('name', name);
  const named = designCells(name, description);
  return { description, named, orders: named.map((cell) => orderOf(cell, description)) };
}

/** The parts of a cell, without values that set nothing. */
export function orderOf({ run_name, axes }: NamedCell, { axes: values, base, overrides }: Description): CellOrder {
  return {
    name: run_name,
    base: base === true ? null : [base, axes[base]],
    values: Object.entries(axes)
      .filter(([axis, value]) => axis !== base && values[axis][value].length > 0)
      .sort(([a], [b]) => (a < b ? -1 : 1)),
    overrides: overrides.flatMap(({ cell }, index) => (matches(axes, cell) ? [index] : [])),
  };
}

/** Adds the file to errors without a place. */
function inFile<T>(file: string, plan: () => T): T {
  try {
    return plan();
  } catch (error) {
    if (!(error instanceof ConfigError) || error.where !== undefined) throw error;
    const { message, next } = error;
    throw new ConfigError(message, { where: displayPath(file), ...(next === undefined ? {} : { next }), cause: error });
  }
}

/** Jsonnet reports axes and values as lists, because a parsed object loses keys such as __proto__, which are rejected. */
function withAxes(described: unknown): unknown {
  if (!isObject(described) || !isObject(described['axes'])) return described;
  const axes = (described['axes']['pairs'] as [string, unknown][]).map(([axis, values]): [string, unknown] => {
    checkNamePart('axis', axis);
    if (!Array.isArray(values)) return [axis, values];
    for (const [value] of values as [string][]) checkNamePart(`axis ${axis}: value`, value);
    return [axis, Object.fromEntries(values as [string, unknown][])];
  });
  return { ...described, axes: Object.fromEntries(axes) };
}

function readDescription(description: unknown, file: string): Description {
  const described =
    isObject(description) && 'measure' in description
      ? { ...description, measure: rewardForms().canonicalMeasure(description['measure']) }
      : description;
  const schema = descriptionSchema();
  const parsed = schema.safeParse(described);
  // Each cell completes the fields of the measure, possibly from its reward.
  if (parsed.success) return { ...parsed.data, measure: (isObject(described) && described['measure']) || [] };
  const problems = problemsOf(parsed.error, schema, described);
  throw new ConfigError(
    problems.map(({ key, message }) => (key === '' ? message : `${key}: ${message}`)).join('\n  '),
    {
      where: displayPath(file),
      next: 'editrl config schema --experiment lists every key of an experiment; docs/guide/experiments-and-results.md has examples.',
    },
  );
}

/** The parts of a cell that are merged over its base, in order, and its name. The name is null for a config. */
export interface CellOrder {
  readonly name: string | null;
  /** The axis value that is the base. Null if all cells share one base. */
  readonly base: AxisValue | null;
  readonly values: readonly AxisValue[];
  /** Indices of overrides. */
  readonly overrides: readonly number[];
}

type AxisValue = readonly [axis: string, value: string];

/**
 * An experiment without its settings: the value names of each axis with their fields, and the fields of each override. null for a config, which has none
 * of the given keys. The name of its type for a file that is not an object.
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
 * Cells as a list. Their parts are merged before anything is manifested and the name comes last, so that all references see the final values. Jsonnet
 * evaluates a field of an object at every access but an element of an array once, so shared parts are in an array.
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

function valueOf([axis, value]: AxisValue): string {
  return `e.axes[${JSON.stringify(axis)}][${JSON.stringify(value)}]`;
}
