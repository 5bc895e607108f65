/** From an experiment file to its cells and the runs that they start from: frozen settings with names, hashes and parents. */
import { existsSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { ConfigError, InternalError, must } from '../../core/errors.js';
import { displayPath, evaluateSnippet, fileStem, importClosure, type Environment } from '../jsonnet.js';
import { canonicalForm, referencePaths, type LoadedConfig } from '../load.js';
import { getPath } from '../paths.js';
import { problemsOf, type Problem } from '../problems.js';
import { isObject } from '../schema/walk.js';
import { taskNames } from '../schema/tasks.js';
import { checkClashes } from './clashes.js';
import { checkName, checkNamePart, designCells, matches, nameWith, type AxisValues } from './design.js';
import { description as descriptionSchema, type Description, type ExperimentOptions } from './schema.js';
import { Settler } from './settle.js';
import { matrixSnippet, parentsSnippet, PLAN, type EvaluationPlan } from './snippet.js';

export interface ExperimentRequest {
  /** An experiment, or a config, which is then an experiment of one cell. */
  readonly file: string;
  /** Files merged over the base, after those of the experiment itself; parents get them too. */
  readonly overlays?: readonly string[];
  readonly env?: Environment;
}

/** One run of an experiment. */
export interface Cell {
  readonly run_name: string;
  /** Its value of each axis; of a parent, those that reach it. */
  readonly axes: AxisValues;
  readonly config: LoadedConfig;
  /** Names of the runs that it starts from. */
  readonly parents: readonly string[];
  /** The settings that differ from its baseline cell, or, without one, that are not the same in all cells. */
  readonly differs: Readonly<Record<string, unknown>>;
}

export interface Experiment {
  readonly name: string;
  readonly file: string;
  readonly cells: readonly Cell[];
  /** The runs that cells start from, and those that these start from; nearest first. */
  readonly parents: readonly Cell[];
  readonly baseline: AxisValues | null;
  readonly options: ExperimentOptions;
}

/** Problems of so many cells are shown. */
const SHOWN_CELLS = 3;

/** Loads an experiment. Raises ConfigError: of what is wrong with its form, or of all cells that are not valid together. */
export async function loadExperiment(request: ExperimentRequest): Promise<Experiment> {
  const { file, overlays: given = [], env = process.env } = request;
  const matrix = await evaluateMatrix(file, given, env);
  const { name, description, overlays, named, value, sources, importHash } = matrix;
  const run = new Runs(file, overlays, description, env);
  const drafts = value.map((raw, index) => run.draft(raw, file, named[index].axes, importHash, sources));
  if (description !== null) {
    const raws = drafts.map(({ axes, raw }) => ({ axes, value: raw }));
    await checkClashes({ file, env }, description, raws);
  }
  const parents: Draft[] = [];
  for (let wave = run.wanted(drafts); wave.length > 0;) {
    const made = await run.parents(wave);
    parents.push(...made);
    wave = run.wanted(made);
  }
  const settled = run.settle([...drafts, ...parents]);
  const cells = settled.slice(0, drafts.length);
  const names = new Map(cells.map((cell) => [cell.run_name, cell]));
  const others = settled.slice(drafts.length).filter((parent) => {
    const cell = names.get(parent.run_name);
    if (cell !== undefined && cell.config.resultHash !== parent.config.resultHash) {
      throw new ConfigError(
        `run_name ${parent.run_name} is a cell's and, with other settings, that of a run that cells start from`,
        {
          where: file,
          next: 'Rename the experiment or an axis.',
        },
      );
    }
    return cell === undefined;
  });
  refuseCycles([...cells, ...others], file);
  return {
    name,
    file,
    cells: withDifferences(cells, description?.baseline ?? null, run.settler),
    parents: others,
    baseline: description?.baseline ?? null,
    options: { stop_early: description?.stop_early ?? null },
  };
}

interface Matrix {
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

/**
 * Evaluates all cells at once: Jsonnet tells the names of axes and values, and is told the cells. An import needs its path
 * written out, so the overlays that a file may name are those texts in it that are files; only where it computes a path is
 * the evaluation made once more.
 */
async function evaluateMatrix(file: string, given: readonly string[], env: Environment): Promise<Matrix> {
  const known = new Set(mentionedOverlays(file));
  for (const path of given) known.add(resolve(path));
  for (;;) {
    const found: { matrix: Omit<Matrix, 'value' | 'sources' | 'importHash'> | null } = { matrix: null };
    const missing: string[] = [];
    const plan = (text: string): EvaluationPlan => {
      const described = parseDescription(text);
      const description = isObject(described) && isConfig(described) ? null : readDescription(described, file);
      const name = description?.name ?? fileStem(file);
      const own = (description?.with ?? []).map((path) => resolve(dirname(file), path));
      missing.push(...own.filter((path) => !known.has(path)));
      if (missing.length > 0) throw new OverlaysMissing('overlays are missing');
      const paths = [...own, ...given.map((path) => resolve(path))];
      if (description === null) {
        found.matrix = { name, description, overlays: paths, named: [{ axes: {} }] };
        return { overlays: paths, mixins: [], cells: [{ name: null, base: null, mixins: [], overrides: [] }] };
      }
      checkNamePart('name', name);
      const named = designCells(name, description);
      found.matrix = { name, description, overlays: paths, named };
      return { overlays: paths, ...orders(named, description) };
    };
    // Texts of the file that are no overlays at all are imported by nobody: an import is read when it is used.
    const roots = [file, ...given];
    try {
      const evaluation = await evaluateSnippet({
        file,
        roots,
        snippet: matrixSnippet(file, [...known]),
        environment: env,
        natives: { [PLAN]: plan },
      });
      const matrix = must(found.matrix, 'the plan of the matrix');
      const sources = importClosure([file, ...matrix.overlays]);
      return { ...matrix, ...evaluation, sources, value: evaluation.value as Record<string, unknown>[] };
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

function orders(
  named: readonly { readonly run_name: string; readonly axes: AxisValues }[],
  { axes: values, base, overrides }: Description,
): Pick<EvaluationPlan, 'mixins' | 'cells'> {
  const mixins = Object.keys(values)
    .sort()
    .flatMap((axis) => Object.keys(values[axis]).map((value): [string, string] => [axis, value]));
  const places = new Map(mixins.map(([axis, value], index) => [`${axis} ${value}`, index]));
  const placeOf = (axis: string, value: string): number =>
    must(places.get(`${axis} ${value}`), `a place for ${axis} ${value}`);
  return {
    mixins,
    cells: named.map(({ run_name, axes }) => ({
      name: run_name,
      base: base === true ? null : placeOf(base, axes[base]),
      mixins: Object.entries(axes)
        .filter(([axis, value]) => axis !== base && values[axis][value].length > 0)
        .map(([axis, value]) => placeOf(axis, value))
        .sort((a, b) => a - b),
      overrides: overrides.flatMap(({ cell }, index) => (matches(axes, cell) ? [index] : [])),
    })),
  };
}

function parseDescription(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return text; // Not an object: Jsonnet told the type's name.
  }
}

function isConfig(described: Record<string, unknown>): boolean {
  return !['base', 'axes', 'design'].some((key) => key in described);
}

function readDescription(described: unknown, file: string): Description {
  const parsed = descriptionSchema.safeParse(described);
  if (parsed.success) return parsed.data;
  const problems = problemsOf(parsed.error, descriptionSchema, described);
  throw new ConfigError(
    problems.map(({ key, message }) => (key === '' ? message : `${key}: ${message}`)).join('\n  '),
    {
      where: displayPath(file),
      next: 'An experiment is { name, base, with, axes: { axis: { value: {…} } }, design, baseline, … }; docs: editrl plan --help.',
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

/** A run before it is validated. */
interface Draft {
  readonly raw: Record<string, unknown>;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
  readonly file: string;
  readonly axes: AxisValues;
  readonly importHash: string;
  readonly parents: readonly Wanted[];
}

interface Wanted {
  readonly name: string;
  readonly file: string;
  readonly axes: AxisValues;
  readonly by: string;
}

/** The runs of an experiment as they come to be: cells first, then generation after generation of parents. */
class Runs {
  readonly settler = new Settler();
  readonly #known = new Map<string, Wanted>();
  readonly #resolved = new Map<string, string>();

  constructor(
    private readonly file: string,
    private readonly overlays: readonly string[],
    private readonly description: Description | null,
    private readonly env: Environment,
  ) {
    const base = description?.base;
    if (typeof base === 'string' && description?.share.includes(base) === true) {
      throw new ConfigError(`share: axis '${base}' gives the base; a parent has its own config`, { where: file });
    }
  }

  draft(
    value: Record<string, unknown>,
    file: string,
    axes: AxisValues,
    importHash: string,
    sources: ReadonlyMap<string, string>,
  ): Draft {
    const { value: raw, problems, warnings } = canonicalForm(value);
    const parents: Wanted[] = [];
    const task = taskNames.find((name) => name === raw['task']);
    const share = (this.description?.share ?? []).filter((axis) => axes[axis] !== undefined);
    const reached = Object.fromEntries(share.map((axis) => [axis, axes[axis]]));
    for (const path of task === undefined ? [] : referencePaths[task]) {
      const reference = getPath(raw, path);
      if (!isObject(reference) || typeof reference['run'] !== 'string' || typeof reference['config'] !== 'string') {
        continue;
      }
      const config = this.#find(file, reference['config'], sources, String(raw['run_name']));
      const name = nameWith(reference['run'], share, axes);
      checkName(name);
      reference['run'] = name;
      if (resolve(dirname(file), reference['config']) !== config) {
        reference['config'] = relative(dirname(resolve(file)), config);
      }
      if (!parents.some((parent) => parent.name === name)) {
        parents.push({ name, file: config, axes: reached, by: String(raw['run_name']) });
      }
    }
    return { raw, problems, warnings, file, axes, importHash, parents };
  }

  /** Parents that are not made yet. Raises ConfigError when one name is wanted for different settings. */
  wanted(drafts: readonly Draft[]): Wanted[] {
    const fresh: Wanted[] = [];
    for (const parent of drafts.flatMap(({ parents }) => parents)) {
      const known = this.#known.get(parent.name);
      if (known === undefined) {
        this.#known.set(parent.name, parent);
        fresh.push(parent);
      } else if (known.file !== parent.file || JSON.stringify(known.axes) !== JSON.stringify(parent.axes)) {
        throw new ConfigError(
          `${known.by} and ${parent.by} start from a run ${parent.name} with different settings: ${displayPath(known.file)} ${JSON.stringify(known.axes)} and ${displayPath(parent.file)} ${JSON.stringify(parent.axes)}`,
          { where: displayPath(this.file), next: 'Give the two runs different names where they are referred to.' },
        );
      }
    }
    return fresh;
  }

  /** Evaluates a generation of parents at once. */
  async parents(wave: readonly Wanted[]): Promise<Draft[]> {
    const orders = wave.map(({ name, file, axes }) => ({
      name,
      file,
      mixins: Object.entries(axes).sort(([a], [b]) => (a < b ? -1 : 1)),
    }));
    const files = [...new Set(wave.map(({ file }) => file))];
    const evaluation = await evaluateSnippet({
      file: this.file,
      roots: [...files, ...this.overlays],
      snippet: parentsSnippet(this.file, this.overlays, orders),
      environment: this.env,
    });
    return (evaluation.value as Record<string, unknown>[]).map((raw, index) =>
      this.draft(raw, displayPath(wave[index].file), wave[index].axes, evaluation.importHash, evaluation.sources),
    );
  }

  /** Raises one ConfigError for all runs that are not valid. */
  settle(drafts: readonly Draft[]): Cell[] {
    const cells: Cell[] = [];
    const wrong: { readonly name: string; readonly problems: readonly Problem[] }[] = [];
    const overlays = Object.freeze(this.overlays.map(displayPath));
    for (const { raw, problems, warnings, file, axes, importHash, parents } of drafts) {
      const settled = this.settler.settle(raw);
      if ('problems' in settled || problems.length > 0) {
        wrong.push({
          name: String(raw['run_name']),
          problems: [...problems, ...('problems' in settled ? settled.problems : [])],
        });
        continue;
      }
      const { settings, resultHash } = settled;
      const config = Object.freeze({
        settings,
        resultHash,
        importHash,
        warnings: [...warnings, ...settled.warnings],
        file,
        overlays,
        sets: [],
      });
      cells.push({ run_name: settings.run_name, axes, config, parents: parents.map(({ name }) => name), differs: {} });
    }
    if (wrong.length > 0) throw this.#invalid(wrong, drafts.length);
    return cells;
  }

  #invalid(wrong: readonly { name: string; problems: readonly Problem[] }[], of: number): ConfigError {
    const shown = wrong
      .slice(0, SHOWN_CELLS)
      .map(
        ({ name, problems }) => `  ${name}\n${problems.map(({ key, message }) => `    ${key}: ${message}`).join('\n')}`,
      );
    const more = wrong.length > SHOWN_CELLS ? `\n  and ${wrong.length - SHOWN_CELLS} more` : '';
    return new ConfigError(`${wrong.length} of ${of} runs are not valid\n${shown.join('\n')}${more}`, {
      where: displayPath(this.file),
      next: 'editrl config schema lists every key with its meaning.',
    });
  }

  /** The config that makes a run: beside the file that names it, else beside a file that this one imports. */
  #find(file: string, config: string, sources: ReadonlyMap<string, string>, by: string): string {
    const key = `${file} ${config}`;
    const known = this.#resolved.get(key);
    if (known !== undefined) return known;
    const beside = resolve(dirname(file), config);
    const folders = [...new Set([...sources.keys()].map((path) => dirname(path)))];
    const found = existsSync(beside)
      ? [beside]
      : [...new Set(folders.map((folder) => resolve(folder, config)).filter(existsSync))];
    if (found.length !== 1) {
      const what = found.length === 0 ? 'is not there' : `may be any of ${found.map(displayPath).join(', ')}`;
      throw new ConfigError(`${by} starts from the run of ${config}, which ${what}`, {
        where: displayPath(file),
        next: `A config's path is relative to the file that names it, or to one that it imports (looked in: ${folders.map(displayPath).join(', ')}).`,
      });
    }
    this.#resolved.set(key, found[0]);
    return found[0];
  }
}

/** Raises ConfigError when runs need each other. */
function refuseCycles(runs: readonly Cell[], file: string): void {
  const byName = new Map(runs.map((run) => [run.run_name, run]));
  const done = new Set<string>();
  const visit = (name: string, path: readonly string[]): void => {
    if (path.includes(name)) {
      throw new ConfigError(`runs need each other: ${[...path.slice(path.indexOf(name)), name].join(' -> ')}`, {
        where: displayPath(file),
        next: 'Let one of them start from a checkpoint or from random weights.',
      });
    }
    if (done.has(name)) return;
    for (const parent of byName.get(name)?.parents ?? []) visit(parent, [...path, name]);
    done.add(name);
  };
  for (const { run_name } of runs) visit(run_name, []);
}

function withDifferences(cells: readonly Cell[], baseline: AxisValues | null, settler: Settler): Cell[] {
  if (baseline === null) {
    const varying = settler.varying(cells.map(({ config }) => config.settings));
    return cells.map((cell) => ({ ...cell, differs: settler.valuesOf(cell.config.settings, varying) }));
  }
  const keyOf = (axes: AxisValues): string => JSON.stringify(Object.entries({ ...axes, ...baseline }).sort());
  const bases = new Map(
    cells.filter(({ axes }) => matches(axes, baseline)).map((cell) => [keyOf(cell.axes), cell.config.settings]),
  );
  const first = bases.values().next().value;
  return cells.map((cell) => {
    const base = bases.get(keyOf(cell.axes)) ?? first;
    return base === undefined ? cell : { ...cell, differs: settler.differences(cell.config.settings, base) };
  });
}
