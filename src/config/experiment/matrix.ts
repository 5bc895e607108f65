/** Evaluates an experiment file to its named cells. */
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { ConfigError, InternalError, must } from '../../core/errors.js';
import { LimitError } from '../interpreter.js';
import { displayPath, evaluateSnippet, fileStem, importClosure, type Environment } from '../jsonnet.js';
import { problemsOf } from '../problems.js';
import { canonicalMeasure } from '../../rewards/score/settings.js';
import { isObject } from '../../schema/walk.js';
import { checkNamePart, designCells, matches, type AxisValues } from './design.js';
import { description as descriptionSchema, type Description } from './schema.js';
import { Sections, type BaseFields, type MatrixShape, type Rows } from './sections.js';
import {
  matrixSnippet,
  PLAN,
  TABLES,
  SECTION_READ_FUNCTION,
  NEXT_TABLE_FUNCTION,
  type CellOrder,
  type EvaluationPlan,
  type TableOrder,
} from './snippet.js';

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

/** Raised within the evaluation when overlays have to be imported that the file's text does not name. */
class OverlaysMissing extends InternalError {}

/** Larger matrices are evaluated section by section; smaller ones cost less as a whole. */
const MOST_WHOLE = 64;

interface Planned {
  readonly matrix: Omit<Matrix, 'value' | 'sources' | 'importHash'>;
  readonly plan: EvaluationPlan;
  readonly shape: MatrixShape;
}

/**
 * Evaluates all cells at once: Jsonnet reports the names of axes and values, and receives the cells. An import needs a literal path, so the overlays
 * that a file may name are the texts in it that are files; the evaluation is repeated only if the file computes a path. A large matrix is evaluated
 * by sections; errors there are reported from evaluating the cells themselves.
 */
export async function evaluateMatrix(file: string, given: readonly string[], env: Environment): Promise<Matrix> {
  const known = new Set(mentionedOverlays(file));
  for (const path of given) known.add(resolve(path));
  for (let whole = false; ;) {
    const missing: string[] = [];
    const found: { planned: Planned | null; sections: Sections | null } = { planned: null, sections: null };
    const sections = (): Sections => must(found.sections, 'the sections of a matrix');
    const natives = {
      [PLAN]: (text: string): EvaluationPlan => {
        const planned = planCells(text, file, given, (overlays) => {
          missing.push(...overlays.filter((path) => !known.has(path)));
          if (missing.length > 0) throw new OverlaysMissing('overlays are missing');
        });
        found.planned = planned;
        if (whole || planned.shape.cells.length <= MOST_WHOLE) return planned.plan;
        found.sections = new Sections(planned.shape);
        return found.sections.plan(planned.plan);
      },
      [TABLES]: (text: string): TableOrder | null => sections().begin(JSON.parse(text) as BaseFields),
      [NEXT_TABLE_FUNCTION]: (text: string): TableOrder | null => sections().take(JSON.parse(text) as Rows),
      [SECTION_READ_FUNCTION]: (text: string): true => {
        const cut = text.lastIndexOf(' ');
        sections().touched(text.slice(0, cut), text.slice(cut + 1));
        return true;
      },
    };
    try {
      const evaluation = await evaluateSnippet({
        file,
        // Texts of the file that are not overlays are never imported: an import is read only when it is used.
        roots: [file, ...given],
        snippet: matrixSnippet(file, [...known]),
        environment: env,
        natives,
      });
      const { cells } = evaluation.value as { readonly cells: readonly Record<string, unknown>[] };
      const { matrix } = must(found.planned, 'the plan of the matrix');
      const sources = importClosure([file, ...matrix.overlays]);
      return { ...matrix, sources, importHash: evaluation.importHash, value: found.sections?.cells(cells) ?? cells };
    } catch (error) {
      if (error instanceof OverlaysMissing) {
        for (const path of missing) {
          if (!existsSync(path)) {
            throw new ConfigError(`with: no such file: ${displayPath(path)}`, {
              where: file,
              next: 'Overlays are relative to the experiment file.',
            });
          }
          known.add(path);
        }
        continue;
      }
      // Evaluating the whole would take even more.
      if (error instanceof ConfigError && !(error instanceof LimitError) && found.sections !== null) {
        // The fault may be in a combination that no cell has, or in a cell: evaluating whole cells tells.
        whole = true;
        continue;
      }
      if (error instanceof ConfigError && error.where === undefined) {
        throw new ConfigError(error.message, {
          where: displayPath(file),
          ...(error.next === undefined ? {} : { next: error.next }),
          cause: error,
        });
      }
      throw error;
    }
  }
}

/** The cells that an experiment's description asks for. Raises ConfigError for an invalid description. */
function planCells(
  text: string,
  file: string,
  given: readonly string[],
  requireOverlays: (paths: readonly string[]) => void,
): Planned {
  const { described, hidden } = withAxes(parseDescription(text));
  const description = isObject(described) && isConfig(described) ? null : readDescription(described, file);
  const name = description?.name ?? fileStem(file);
  const own = (description?.with ?? []).map((path) => resolve(dirname(file), path));
  requireOverlays(own);
  const overlays = [...own, ...given.map((path) => resolve(path))];
  if (description === null) {
    const order: CellOrder = { name: null, base: null, mixins: [], overrides: [] };
    return {
      matrix: { name, description, overlays, named: [{ axes: {} }] },
      plan: { overlays, cells: [order], probes: [], fields: {} },
      shape: { cells: [{ run_name: name, axes: {}, order }], baseAxis: null, mixins: [], axes: {}, hidden },
    };
  }
  checkNamePart('name', name);
  const named = designCells(name, description);
  const placed = orders(named, description);
  return {
    matrix: { name, description, overlays, named },
    plan: { overlays, cells: placed.cells.map(({ order }) => order), probes: [], fields: {} },
    shape: { ...placed, baseAxis: description.base === true ? null : description.base, axes: description.axes, hidden },
  };
}

function orders(
  named: readonly { readonly run_name: string; readonly axes: AxisValues }[],
  { axes: values, base, overrides }: Description,
): Pick<MatrixShape, 'cells' | 'mixins'> {
  const axes = Object.keys(values).sort();
  const mixins = axes.flatMap((axis) => Object.keys(values[axis]).map(() => axis));
  const sorted = axes.flatMap((axis) =>
    Object.keys(values[axis])
      .sort()
      .map((value) => `${axis} ${value}`),
  );
  const places = new Map(sorted.map((value, place) => [value, place]));
  const placeOf = (axis: string, value: string): number =>
    must(places.get(`${axis} ${value}`), `a place for ${axis} ${value}`);
  return {
    mixins,
    cells: named.map(({ run_name, axes }) => ({
      run_name,
      axes,
      order: {
        name: run_name,
        base: base === true ? null : placeOf(base, axes[base]),
        mixins: Object.entries(axes)
          .filter(([axis, value]) => axis !== base && values[axis][value].length > 0)
          .map(([axis, value]) => placeOf(axis, value))
          .sort((a, b) => a - b),
        overrides: overrides.flatMap(({ cell }, index) => (matches(axes, cell) ? [index] : [])),
      },
    })),
  };
}

function parseDescription(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text; // Not an object: Jsonnet returned the name of its type.
  }
}

/**
 * Jsonnet reports the values of an axis as lists: their names, their fields, and how many of these are not hidden. Returns the description with
 * fields by value, and the fields of values that hide any.
 */
function withAxes(description: unknown): { readonly described: unknown; readonly hidden: ReadonlySet<string> } {
  const hidden = new Set<string>();
  if (!isObject(description) || !isObject(description['axes'])) return { described: description, hidden };
  const axes = Object.entries(description['axes']).map(([axis, lists]): [string, unknown] => {
    if (!Array.isArray(lists)) return [axis, lists];
    const [names, fields, shown] = lists as [string[], string[][], number[]];
    // Checked here, because a parsed description has lost keys called __proto__.
    for (const name of [axis, ...names]) checkNamePart(name === axis ? 'axis' : `axis ${axis}: value`, name);
    for (const [index, all] of fields.entries()) {
      if (all.length > shown[index]) for (const field of all) hidden.add(field);
    }
    return [axis, Object.fromEntries(names.map((name, index) => [name, fields[index]]))];
  });
  return { described: { ...description, axes: Object.fromEntries(axes) }, hidden };
}

function isConfig(described: Record<string, unknown>): boolean {
  return !Object.keys(descriptionSchema.shape).some((key) => key in described);
}

function readDescription(description: unknown, file: string): Description {
  const described =
    isObject(description) && 'measure' in description
      ? { ...description, measure: canonicalMeasure(description['measure']) }
      : description;
  const parsed = descriptionSchema.safeParse(described);
  // Each cell fills in the fields of the measure: those that it leaves out may come from the cell's reward.
  if (parsed.success) return { ...parsed.data, measure: (isObject(described) && described['measure']) || [] };
  const problems = problemsOf(parsed.error, descriptionSchema, described);
  throw new ConfigError(
    problems.map(({ key, message }) => (key === '' ? message : `${key}: ${message}`)).join('\n  '),
    {
      where: displayPath(file),
      next: 'editrl config schema --experiment lists every key of an experiment; docs/experiments.md has examples.',
    },
  );
}

/** Texts in a file that name another Jsonnet file. */
function mentionedOverlays(file: string): string[] {
  const text = importClosure([file]).get(resolve(file)) ?? '';
  return [...text.matchAll(/'([^'\n]+\.(?:libsonnet|jsonnet))'|"([^"\n]+\.(?:libsonnet|jsonnet))"/g)]
    .map((match) => resolve(dirname(file), match[1] ?? match[2]))
    .filter((path) => path !== resolve(file) && existsSync(path));
}
