/** Loads an experiment file: its cells and the runs that they start from, as frozen settings with names, hashes and parents. */
import { resolve, dirname } from 'node:path';
import { ConfigError, UsageError } from '../../core/errors.js';
import { rewardForms, type Measure } from '../recipes.js';
import { displayPath, type Environment } from '../jsonnet.js';
import { parseSet } from '../sets.js';
import { checkClashes } from './clashes.js';
import { matches, type AxisValues } from './design.js';
import { evaluateMatrix } from './matrix.js';
import { Runs, type Cell, type RunDraft } from './runs.js';
import type { Settler } from '../settle.js';

export type { Cell } from './runs.js';

export interface ExperimentRequest {
  /** An experiment, or a config, which is an experiment with one cell. */
  readonly file: string;
  /** Files merged over the base, after the experiment's own. Parents get them too. */
  readonly overlays?: readonly string[];
  /** `a.b=value`, set in every cell over its axes. Only base_exp_dir applies to parents. */
  readonly sets?: readonly string[];
  readonly env?: Environment;
}

export interface Experiment {
  readonly name: string;
  readonly file: string;
  readonly cells: readonly Cell[];
  /** The runs that cells start from, directly or not, nearest first. */
  readonly parents: readonly Cell[];
  readonly baseline: AxisValues | null;
  /** The axis whose values are configs. Null if all cells share one base config. */
  readonly baseAxis: string | null;
  /** The config file that it imports as its base. Null if its text names none. */
  readonly baseFile: string | null;
  /** The terms that measure and compare all cells. */
  readonly measure: readonly Measure[];
  /** Warnings before it runs. */
  readonly warnings: readonly string[];
}

/** Loads an experiment. Raises ConfigError for problems in its form, or one for all invalid cells. */
export async function loadExperiment(request: ExperimentRequest): Promise<Experiment> {
  const { file, overlays: given = [], sets = [], env = process.env } = request;
  const matrix = await evaluateMatrix(file, given, env);
  const { name, description, overlays, named, value, sources, importHash } = matrix;
  if (description !== null && sets.some((text) => parseSet(text).path === 'run_name')) {
    throw new UsageError('--set run_name: the cells of an experiment are named after its axes', {
      next: "The first part of the names is the experiment's name.",
    });
  }
  const run = new Runs(file, overlays, sets, description, env);
  const drafts = value.map((raw, index) => run.draft(raw, sets, file, named[index].axes, importHash, sources, 'cell'));
  const raws = drafts.map(({ axes, draft }) => ({ axes, value: draft.value }));
  const clashes = description === null ? [] : await checkClashes({ file, env, overlays }, description, raws);
  const parents: RunDraft[] = [];
  for (let wave = run.wanted(drafts); wave.length > 0;) {
    const made = await run.parents(wave);
    parents.push(...made);
    wave = run.wanted(made);
  }
  const settled = run.settle([...drafts, ...parents], description === null ? null : name);
  const cells = settled.slice(0, drafts.length);
  const names = new Map(cells.map((cell) => [cell.run_name, cell]));
  const others = settled.slice(drafts.length).filter((parent) => {
    const cell = names.get(parent.run_name);
    if (cell !== undefined && cell.config.resultHash !== parent.config.resultHash) {
      throw new ConfigError(
        `run_name ${parent.run_name} belongs to a cell and, with other settings, to a parent of cells`,
        {
          where: file,
          next: 'Rename the experiment or an axis.',
        },
      );
    }
    return cell === undefined;
  });
  const measure = commonMeasure(cells);
  if (description !== null && measure.length === 0 && asList(description.measure).length > 0) {
    throw new ConfigError("measure: the cells' rewards have a term of this name with different fields", {
      where: displayPath(file),
      next: "Give the measure's fields, such as measure: { name: 'image_similarity', to: 'truth' }.",
    });
  }
  refuseCycles([...cells, ...others], file);
  return {
    name,
    file,
    cells: withDifferences(cells, description?.baseline ?? null, run.settler),
    parents: others,
    baseline: description?.baseline ?? null,
    baseAxis: typeof description?.base === 'string' ? description.base : null,
    baseFile: importedBase(resolve(file), sources.get(resolve(file)) ?? ''),
    measure,
    warnings: [...clashes, ...sameCells(cells)],
  };
}

const asList = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [value]);

/** The `validation.measure` of all cells. Empty if they differ. */
function commonMeasure(cells: readonly Cell[]): readonly Measure[] {
  const all = cells.map(({ config }) => rewardForms().settingsOf(config.settings)?.measure ?? []);
  return all.every((one) => JSON.stringify(one) === JSON.stringify(all[0])) ? (all[0] ?? []) : [];
}

/** Maximum number of groups of equal cells in a message, and of cells in a group. */
const SHOWN_SAME = 3;

/** One warning for all cells with equal result-affecting settings. */
function sameCells(cells: readonly Cell[]): string[] {
  const byHash = new Map<string, string[]>();
  for (const { run_name, config } of cells) {
    // The hash leaves out the environment, which may affect a foreign trainer.
    const what = `${config.resultHash} ${JSON.stringify(config.settings.launch.env)}`;
    const names = byHash.get(what);
    if (names === undefined) byHash.set(what, [run_name]);
    else names.push(run_name);
  }
  const same = [...byHash.values()].filter((names) => names.length > 1);
  if (same.length === 0) return [];
  const repeated = same.reduce((sum, names) => sum + names.length - 1, 0);
  const shown = same.slice(0, SHOWN_SAME).map((names) => `  ${firstOf(names).join(', ')}`);
  const more = same.length > SHOWN_SAME ? [`  and ${same.length - SHOWN_SAME} more groups`] : [];
  return [
    `${repeated} of ${cells.length} cells repeat others; these have the same result-affecting settings:\n${[...shown, ...more].join('\n')}`,
  ];
}

function firstOf(names: readonly string[]): string[] {
  const more = names.length - SHOWN_SAME;
  return more > 0 ? [...names.slice(0, SHOWN_SAME), `and ${more} more`] : [...names];
}

/** Raises ConfigError if runs start from each other in a cycle. */
function refuseCycles(runs: readonly Cell[], file: string): void {
  const byName = new Map(runs.map((run) => [run.run_name, run]));
  const done = new Set<string>();
  const visit = (name: string, path: readonly string[]): void => {
    if (path.includes(name)) {
      throw new ConfigError(`runs start from each other: ${[...path.slice(path.indexOf(name)), name].join(' -> ')}`, {
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
    return cells.map((cell, index) => ({ ...cell, differs: varying[index] }));
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

/** A field `base` (quoted or not) whose value begins with an import, in a text without comments. */
const COMMENTS = /\/\*[\s\S]*?\*\/|(?:^|\s)(?:\/\/|#).*$/gm;
const BASE = /(?:^|[\s{,;])(['"]?)base\1\s*:\s*\(?\s*import\s*@?(['"])(.+?)\2/;

/** The absolute path of the imported base, from an experiment's file and text. Null if there is none. */
export function importedBase(file: string, text: string): string | null {
  const found = BASE.exec(text.replace(COMMENTS, ''));
  return found === null ? null : resolve(dirname(file), found[3]);
}
