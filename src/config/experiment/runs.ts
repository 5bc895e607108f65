/** Turns what Jsonnet evaluates into an experiment's validated runs: named, hashed, with the runs that they start from. */
import { existsSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { ConfigError } from '../../core/errors.js';
import { dropForeignKeys, hasForeignKeys } from '../inherit.js';
import { displayPath, evaluateSnippet, importOf, type Environment } from '../jsonnet.js';
import type { Problem } from '../../recipes/rules.js';
import { recipeNamed } from '../../recipes/settings.js';
import { getPath, setPath } from '../../schema/paths.js';
import { isObject, schemaAt } from '../../schema/walk.js';
import { canonicalForm, foldersOf, type CanonicalForm, type LoadedConfig } from '../load.js';
import { modelKeys } from '../models.js';
import { placesOf, type Layer } from '../origin.js';
import { parseSet, reachingParents } from '../sets.js';
import { checkName, nameWith, type AxisValues } from './design.js';
import { cellLayers, parentLayers } from './layers.js';
import type { Description } from './schema.js';
import { Settler } from './settle.js';
import { parentsSnippet } from './snippet.js';

/** One run of an experiment. */
export interface Cell {
  readonly run_name: string;
  /** Its value on each axis; for a parent, of the axes that reach it. */
  readonly axes: AxisValues;
  readonly config: LoadedConfig;
  /** Names of the runs that it starts from. */
  readonly parents: readonly string[];
  /** The settings that differ from its baseline cell, or, without a baseline, that are not the same in all cells. */
  readonly differs: Readonly<Record<string, unknown>>;
}

/** Maximum number of cells whose problems are shown. */
const SHOWN_CELLS = 3;

/** A run before it is validated. */
export interface Draft {
  readonly raw: Record<string, unknown>;
  /** What `--set` changed in it. */
  readonly sets: readonly string[];
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
  readonly words: CanonicalForm['words'];
  readonly file: string;
  readonly axes: AxisValues;
  readonly importHash: string;
  readonly parents: readonly WantedRun[];
  /** A cell is named by its axes; a parent by the run that refers to it. */
  readonly made: 'cell' | 'parent';
}

export interface WantedRun {
  readonly name: string;
  readonly file: string;
  readonly axes: AxisValues;
  readonly by: string;
}

/** Copies the sections that `--set` changes, because cells share them. */
function ownSections(value: Record<string, unknown>, sets: readonly string[]): Record<string, unknown> {
  const changed = sets.map((text) => parseSet(text).path.split('.')[0]).filter((key) => Object.hasOwn(value, key));
  return { ...value, ...Object.fromEntries(changed.map((key) => [key, structuredClone(value[key])])) };
}

interface WrongRun {
  readonly name: string;
  readonly draft: Draft;
  readonly problems: readonly Problem[];
}

/** The runs of an experiment under construction: first the cells, then generation after generation of parents. */
export class Runs {
  readonly settler = new Settler();
  readonly #known = new Map<string, WantedRun>();
  readonly #resolved = new Map<string, string>();
  readonly #copies = new WeakMap<object, Map<string, unknown>>();

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
    made: Draft['made'],
  ): Draft {
    const folders = foldersOf(file, sources);
    const given = made === 'cell' ? this.#measured(value) : value;
    const form = canonicalForm(ownSections(given, sets), { file, env: this.env, overlaid: true, sets, folders });
    const { value: canonical, problems, warnings, words } = form;
    const parents: WantedRun[] = [];
    const renamed: Record<string, unknown> = {};
    const share = (this.description?.share ?? []).filter((axis) => axes[axis] !== undefined);
    const reached = Object.fromEntries(share.map((axis) => [axis, axes[axis]]));
    for (const path of modelKeys(canonical)) {
      const reference = getPath(canonical, path);
      if (!isObject(reference) || typeof reference['run'] !== 'string' || typeof reference['config'] !== 'string') {
        continue;
      }
      const config = this.#find(file, reference['config'], sources, String(canonical['run_name']));
      const name = nameWith(reference['run'], share, axes);
      checkName(name);
      const beside = resolve(dirname(file), reference['config']) === config;
      const configPath = beside ? reference['config'] : relative(dirname(resolve(file)), config);
      renamed[path] = { ...reference, run: name, config: configPath };
      if (!parents.some((parent) => parent.name === name)) {
        parents.push({ name, file: config, axes: reached, by: String(canonical['run_name']) });
      }
    }
    const raw = this.#withReferences(canonical, renamed);
    return { raw, sets, problems, warnings, words, file, axes, importHash, parents, made };
  }

  /** A cell with the experiment's measure. */
  #measured(value: Record<string, unknown>): Record<string, unknown> {
    const measure = this.description?.measure ?? [];
    if (Array.isArray(measure) && measure.length === 0) return value;
    const { validation, task } = value;
    const recipe = recipeNamed(task);
    if (recipe !== undefined && schemaAt(recipe.schema, ['validation', 'measure'], null) === null) {
      throw new ConfigError(
        `measure: found with cells of task '${recipe.name}', which has no answers that a term could score`,
        {
          where: displayPath(this.file),
          next: 'Leave measure out; such cells are compared by their held-out loss.',
        },
      );
    }
    // A value that is not a section is reported as such.
    if (validation !== undefined && !isObject(validation)) return value;
    return { ...value, validation: { ...validation, measure } };
  }

  /** Settings with other references. Sections are shared between cells, so each is copied once per set of references. */
  #withReferences(
    settings: Record<string, unknown>,
    references: Readonly<Record<string, unknown>>,
  ): Record<string, unknown> {
    const bySection = new Map<string, [string, unknown][]>();
    for (const [path, reference] of Object.entries(references)) {
      const [section, ...rest] = path.split('.');
      bySection.set(section, [...(bySection.get(section) ?? []), [rest.join('.'), reference]]);
    }
    const copied = { ...settings };
    for (const [section, entries] of bySection) {
      const original = settings[section] as Record<string, unknown>;
      const copies = this.#copies.get(original) ?? new Map<string, unknown>();
      this.#copies.set(original, copies);
      const key = JSON.stringify(entries);
      if (!copies.has(key)) {
        const copy = structuredClone(original);
        for (const [path, reference] of entries) setPath(copy, path, reference);
        copies.set(key, copy);
      }
      copied[section] = copies.get(key);
    }
    return copied;
  }

  /** Parents that are not made yet. Raises ConfigError when the same name is wanted with different settings. */
  wanted(drafts: readonly Draft[]): WantedRun[] {
    const fresh: WantedRun[] = [];
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

  /** Evaluates a generation of parents in one go. */
  async parents(wave: readonly WantedRun[]): Promise<Draft[]> {
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
    const values = evaluation.value as Record<string, unknown>[];
    await this.#dropForeignKeys(values, wave);
    const reaching = reachingParents(this.sets);
    return values.map((raw, index) =>
      this.draft(
        raw,
        reaching,
        displayPath(wave[index].file),
        wave[index].axes,
        evaluation.importHash,
        evaluation.sources,
        'parent',
      ),
    );
  }

  /** Drops keys of parents that neither their recipes nor their own files have. */
  async #dropForeignKeys(values: readonly Record<string, unknown>[], wave: readonly WantedRun[]): Promise<void> {
    const files = values.flatMap((value, index) =>
      !this.settler.isValid(value) && hasForeignKeys(value) ? [wave[index].file] : [],
    );
    const roots = [...new Set(files)];
    if (roots.length === 0) return;
    const snippet = `[${roots.map(importOf).join(', ')}]`;
    const own = await evaluateSnippet({ file: this.file, roots, snippet, environment: this.env });
    const ofFile = new Map(roots.map((file, index) => [file, (own.value as unknown[])[index]]));
    values.forEach((value, index) => {
      if (ofFile.has(wave[index].file)) dropForeignKeys(value, ofFile.get(wave[index].file));
    });
  }

  /** `experiment`: its name, null for a config on its own. Raises one ConfigError for all invalid runs. */
  async settle(drafts: readonly Draft[], experiment: string | null): Promise<Cell[]> {
    const cells: Cell[] = [];
    const wrong: WrongRun[] = [];
    const overlays = Object.freeze(this.overlays.map(displayPath));
    for (const draft of drafts) {
      const { raw, sets, problems, warnings, words, file, axes, importHash, parents } = draft;
      const settled = this.settler.settle(raw);
      if ('problems' in settled || problems.length > 0) {
        const found = 'problems' in settled ? settled.problems : [];
        const named = raw['run_name'];
        wrong.push({
          name: typeof named === 'string' ? named : displayPath(file),
          draft,
          problems: [...problems, ...(words?.problems(found) ?? found)],
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
        sets,
        ...(experiment === null ? {} : { experiment }),
      });
      cells.push({ run_name: settings.run_name, axes, config, parents: parents.map(({ name }) => name), differs: {} });
    }
    if (wrong.length > 0) throw await this.#invalid(wrong, drafts.length);
    return cells;
  }

  async #invalid(wrong: readonly WrongRun[], of: number): Promise<ConfigError> {
    const shown: string[] = [];
    for (const { name, draft, problems } of wrong.slice(0, SHOWN_CELLS)) {
      const keys = problems.map(({ key }) => key);
      const places = await placesOf(keys, {
        file: this.file,
        layers: this.#layers(draft),
        sets: draft.sets,
        env: { ...this.env, APP__RUN_NAME: name },
      });
      const lines = problems.map(({ key, message }, index) => {
        const place = places[index] === '' ? '' : `(${places[index]}) `;
        return `    ${place}${key}: ${message}`;
      });
      shown.push(`  ${name}\n${lines.join('\n')}`);
    }
    const more = wrong.length > SHOWN_CELLS ? `\n  and ${wrong.length - SHOWN_CELLS} more` : '';
    return new ConfigError(`${wrong.length} of ${of} runs are not valid\n${shown.join('\n')}${more}`, {
      where: displayPath(this.file),
      next: 'editrl config schema lists every key with its meaning.',
    });
  }

  #layers({ made, file, axes }: Draft): Layer[] {
    if (made === 'parent') return parentLayers(this.file, file, this.overlays, axes);
    return cellLayers(this.file, this.overlays, this.description, axes);
  }

  /** The config that makes a run: relative to the file that names it, else to a file which that one imports. */
  #find(file: string, config: string, sources: ReadonlyMap<string, string>, by: string): string {
    const key = `${file} ${config}`;
    const known = this.#resolved.get(key);
    if (known !== undefined) return known;
    const beside = resolve(dirname(file), config);
    const folders = foldersOf(file, sources);
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
