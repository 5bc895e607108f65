/** Converts evaluated values to the validated runs of an experiment, with names, hashes and parents. */
import { ConfigError } from '../../core/errors.js';
import { evaluateParents } from '../references.js';
import { displayPath, type Environment } from '../jsonnet.js';
import { problemLines } from '../problems.js';
import type { Problem } from '../schema/rules.js';
import { recipeNamed } from '../recipes.js';
import { getPath, hasPath, setPath, isObject, schemaAt } from '../../core/schema/walk.js';
import { draftOf, foldersOf, layersOf, settleDraft, type Draft, type LoadedConfig } from '../load.js';
import type { Layer } from '../origin.js';
import { reachingParents } from '../sets.js';
import { checkName, nameWith, matches, type AxisValues } from './design.js';
import type { Description } from './schema.js';
import { Settler } from '../settle.js';

/** One run of an experiment. */
export interface Cell {
  readonly run_name: string;
  /** Its value on each axis. For a parent, on the axes that reach it. */
  readonly axes: AxisValues;
  readonly config: LoadedConfig;
  /** Names of the runs that it starts from. */
  readonly parents: readonly string[];
  /** The settings that differ from its baseline cell or, without a baseline, among all cells. */
  readonly differs: Readonly<Record<string, unknown>>;
}

/** Maximum number of cells whose problems are shown. */
const SHOWN_CELLS = 3;

/** A run before it is validated. */
export interface RunDraft {
  readonly draft: Draft;
  /** The `--set`s that were applied. */
  readonly sets: readonly string[];
  readonly file: string;
  readonly axes: AxisValues;
  readonly importHash: string;
  readonly sources: ReadonlyMap<string, string>;
  readonly parents: readonly WantedRun[];
  /** A cell is named after its axes, a parent by the run that refers to it. */
  readonly made: 'cell' | 'parent';
}

export interface WantedRun {
  readonly name: string;
  readonly file: string;
  readonly axes: AxisValues;
  readonly by: string;
}

interface WrongRun {
  readonly name: string;
  readonly run: RunDraft;
  readonly problems: readonly Problem[];
}

/** Builds the runs of an experiment: first the cells, then the parents, one generation after another. */
export class Runs {
  readonly settler = new Settler();
  readonly #known = new Map<string, WantedRun>();

  constructor(
    private readonly file: string,
    private readonly overlays: readonly string[],
    private readonly sets: readonly string[],
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
    sets: readonly string[],
    file: string,
    axes: AxisValues,
    importHash: string,
    sources: ReadonlyMap<string, string>,
    made: RunDraft['made'],
  ): RunDraft {
    const roots = made === 'cell' ? [this.file, ...this.overlays] : [file, ...this.overlays];
    const given = made === 'cell' ? this.#measured(value) : value;
    const draft = draftOf(given, { file, env: this.env, overlaid: true, sets, sources, roots });
    const { value: canonical, references } = draft;
    const parents: WantedRun[] = [];
    const share = (this.description?.share ?? []).filter((axis) => axes[axis] !== undefined);
    const reached = Object.fromEntries(share.map((axis) => [axis, axes[axis]]));
    const by = String(canonical['run_name']);
    for (const { key, run, config } of references) {
      if (config === null) throw this.#noConfig(file, key, canonical, sources);
      const name = nameWith(run, share, axes);
      checkName(name);
      setPath(canonical, `${key}.run`, name);
      if (!parents.some((parent) => parent.name === name)) parents.push({ name, file: config, axes: reached, by });
    }
    return { draft, sets, file, axes, importHash, sources, parents, made };
  }

  /** A cell with the experiment's measure. */
  #measured(value: Record<string, unknown>): Record<string, unknown> {
    const measure = this.description?.measure ?? [];
    if (Array.isArray(measure) && measure.length === 0) return value;
    const { validation, task } = value;
    const recipe = recipeNamed(task);
    if (recipe !== undefined && schemaAt(recipe.schema, ['validation', 'measure'], null) === null) {
      throw new ConfigError(`measure: found with cells of task '${recipe.name}', which has no answers to score`, {
        where: displayPath(this.file),
        next: 'Leave measure out. Such cells are compared by their held-out loss.',
      });
    }
    // A value that is not a section is reported as such.
    if (validation !== undefined && !isObject(validation)) return value;
    return { ...value, validation: { ...validation, measure } };
  }

  /** Parents that are not evaluated yet. Raises ConfigError if a name has two different configs. */
  wanted(drafts: readonly RunDraft[]): WantedRun[] {
    const fresh: WantedRun[] = [];
    for (const parent of drafts.flatMap(({ parents }) => parents)) {
      const known = this.#known.get(parent.name);
      if (known === undefined) {
        this.#known.set(parent.name, parent);
        fresh.push(parent);
      } else if (known.file !== parent.file || JSON.stringify(known.axes) !== JSON.stringify(parent.axes)) {
        throw new ConfigError(
          `${known.by} and ${parent.by} start from a run ${parent.name} with different settings: ${displayPath(known.file)} ${JSON.stringify(known.axes)} and ${displayPath(parent.file)} ${JSON.stringify(parent.axes)}`,
          { where: displayPath(this.file), next: 'Give the two runs different names in the references.' },
        );
      }
    }
    return fresh;
  }

  /** Evaluates a generation of parents. */
  async parents(wave: readonly WantedRun[]): Promise<RunDraft[]> {
    const orders = wave.map(({ name, file, axes }) => ({
      name,
      file,
      mixins: Object.entries(axes).sort(([a], [b]) => (a < b ? -1 : 1)),
    }));
    const from = { file: this.file, overlays: this.overlays, environment: this.env };
    const { values, importHash, sources } = await evaluateParents(from, orders);
    const reaching = reachingParents(this.sets);
    return wave.map(({ file, axes }, index) => {
      const value = values[index] as Record<string, unknown>;
      return this.draft(value, reaching, displayPath(file), axes, importHash, sources, 'parent');
    });
  }

  /** `experiment`: its name. Null for a single config. Raises one ConfigError for all invalid runs. */
  settle(drafts: readonly RunDraft[], experiment: string | null): Cell[] {
    const cells: Cell[] = [];
    const wrong: WrongRun[] = [];
    const overlays = Object.freeze(this.overlays.map(displayPath));
    for (const run of drafts) {
      const { draft, sets, file, axes, importHash, parents } = run;
      const from = { importHash, file, overlays, sets, ...(experiment === null ? {} : { experiment }) };
      const config = settleDraft(draft, this.settler, from);
      if ('problems' in config) {
        const named = draft.value['run_name'];
        wrong.push({ name: typeof named === 'string' ? named : displayPath(file), run, problems: config.problems });
        continue;
      }
      const { run_name } = config.settings;
      cells.push({ run_name, axes, config, parents: parents.map(({ name }) => name), differs: {} });
    }
    if (wrong.length > 0) throw this.#invalid(wrong, drafts.length);
    return cells;
  }

  #invalid(wrong: readonly WrongRun[], of: number): ConfigError {
    const shown = wrong.slice(0, SHOWN_CELLS).map(({ name, run, problems }) => {
      const { draft, sets, sources } = run;
      // The keys of EARL's flat form are not in the draft.
      const has = (key: string): boolean => draft.words !== null || hasPath(draft.value, key);
      const lines = problemLines(problems, { file: this.file, layers: this.#layers(run), sets, sources, has });
      return [`  ${name}`, ...lines.map((line) => `    ${line}`)].join('\n');
    });
    const more = wrong.length > SHOWN_CELLS ? `\n  and ${wrong.length - SHOWN_CELLS} more` : '';
    return new ConfigError(`${wrong.length} of ${of} runs are not valid\n${shown.join('\n')}${more}`, {
      where: displayPath(this.file),
      next: 'editrl config schema lists every key with its meaning.',
    });
  }

  #layers({ made, file, axes }: RunDraft): Layer[] {
    if (made === 'parent') return parentLayers(this.file, file, this.overlays, axes);
    return cellLayers(this.file, this.overlays, this.description, axes);
  }

  #noConfig(file: string, key: string, settings: Record<string, unknown>, sources: RunDraft['sources']): ConfigError {
    const config = String(getPath(settings, `${key}.config`));
    const folders = foldersOf(file, sources).map(displayPath).join(', ');
    return new ConfigError(`${key}.config: found '${config}', but there is no such file (looked in: ${folders})`, {
      where: displayPath(file),
      next: `Write the path of the config that makes ${String(getPath(settings, `${key}.run`))}, relative to the file that names it.`,
    });
  }
}

/** The layers of a cell. A config is an experiment with one cell and a null description. */
export function cellLayers(
  file: string,
  overlays: readonly string[],
  description: Description | null,
  axes: AxisValues,
): Layer[] {
  const [own, ...over] = layersOf({ file, overlays });
  if (description === null) return [own, ...over];
  const { base, overrides } = description;
  const { [base === true ? '' : base]: baseValue, ...others } = axes;
  return [
    base === true ? { name: null, file, prefix: ['base'] } : axisLayer(file, base, baseValue),
    ...over,
    ...axisLayers(file, others),
    ...overrides.flatMap(({ cell }, index) =>
      matches(axes, cell) ? [{ name: `overrides[${index}]`, file, prefix: ['overrides', 'set'] }] : [],
    ),
  ];
}

/** The layers of a run that cells start from. Only some axes reach it. */
export function parentLayers(experiment: string, file: string, overlays: readonly string[], axes: AxisValues): Layer[] {
  return [...layersOf({ file, overlays }), ...axisLayers(experiment, axes)];
}

function axisLayers(file: string, axes: AxisValues): Layer[] {
  return Object.entries(axes)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([axis, value]) => axisLayer(file, axis, value));
}

function axisLayer(file: string, axis: string, value: string): Layer {
  return { name: `axis ${axis} '${value}'`, file, prefix: ['axes', axis, value] };
}
