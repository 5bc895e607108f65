/** Evaluates an experiment file to its named cells. */
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { ConfigError } from '../../core/errors.js';
import { displayPath, evaluateSnippet, fileStem, type Environment } from '../jsonnet.js';
import { problemsOf } from '../problems.js';
import { rewardForms } from '../recipes.js';
import { isObject } from '../../schema/walk.js';
import { checkNamePart, designCells, matches, type AxisValues, type NamedCell } from './design.js';
import { descriptionSchema, type Description } from './schema.js';
import { cellsSnippet, descriptionSnippet, type CellOrder } from './snippet.js';

/** The cells of a matrix, and what they evaluate to. */
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

/** Evaluates an experiment twice: for what it says, and for all cells at once. Raises ConfigError. */
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

/** The cells that an experiment's description asks for. Raises ConfigError for an invalid description. */
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

/** What a cell is made of; values that set nothing are left out. */
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

/** Adds the file to errors that name no place. */
function inFile<T>(file: string, plan: () => T): T {
  try {
    return plan();
  } catch (error) {
    if (!(error instanceof ConfigError) || error.where !== undefined) throw error;
    const { message, next } = error;
    throw new ConfigError(message, { where: displayPath(file), ...(next === undefined ? {} : { next }), cause: error });
  }
}

/** Jsonnet reports axes and their values as lists, because a parsed object loses keys such as __proto__; these are no names. */
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
  // Each cell fills in the fields of the measure: those that it leaves out may come from the cell's reward.
  if (parsed.success) return { ...parsed.data, measure: (isObject(described) && described['measure']) || [] };
  const problems = problemsOf(parsed.error, schema, described);
  throw new ConfigError(
    problems.map(({ key, message }) => (key === '' ? message : `${key}: ${message}`)).join('\n  '),
    {
      where: displayPath(file),
      next: 'editrl config schema --experiment lists every key of an experiment; docs/experiments.md has examples.',
    },
  );
}
