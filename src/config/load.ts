/** From a Jsonnet file to frozen settings: evaluate once, apply --set, translate, validate, hash. */
import { existsSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { ConfigError } from '../core/errors.js';
import { openAiBaseUrl } from '../core/http/base_url.js';
import type { Problem } from './schema/rules.js';
import type { RunReference } from './schema/model.js';
import type { RunSettings } from './schema/run.js';
import { hasPath, isObject } from '../core/schema/walk.js';
import { isFlat } from './earl/keys.js';
import { translateFlat, type FlatWords } from './earl/translate.js';
import {
  evaluateParents,
  overlayOf,
  placeModules,
  placeReferences,
  withoutReach,
  type FoundReference,
} from './references.js';
import { Settler } from './settle.js';
import {
  displayPath,
  evaluateSnippet,
  externalVariables,
  fileStem,
  importOf,
  type Environment,
  type Evaluation,
} from './jsonnet.js';
import { modelsOf } from './models.js';
import { placesOf, type Layer, type Origin } from './origin.js';
import { tracedError } from './problems.js';
import { rewardForms } from './recipes.js';
import { applyChanges, parseSet, reachingParents } from './sets.js';

export interface LoadRequest {
  /** The path of the config. */
  readonly file: string;
  /** Files merged over it with `+`, in order. */
  readonly overlays?: readonly string[];
  /** `a.b=value`, applied last. A value that is not JSON is a string. */
  readonly sets?: readonly string[];
  /** Source of the external variables. Default: the environment of this process. */
  readonly env?: Environment;
}

export interface LoadedConfig {
  /** Complete with defaults, and deeply frozen. */
  readonly settings: RunSettings;
  /** Hash over the `result` fields. */
  readonly resultHash: string;
  /** Hash over the contents of all Jsonnet files that were evaluated. */
  readonly importHash: string;
  readonly warnings: readonly string[];
  /** The settings come from the run's record. `file` is their original source. */
  readonly fromRecord?: true;
  /** Whether to trust records that another user may have written. */
  readonly trust?: boolean | undefined;
  readonly file: string;
  readonly overlays: readonly string[];
  readonly sets: readonly string[];
  /** The experiment of the run. Absent for a single config. */
  readonly experiment?: string;
  /** Result-affecting settings that may differ from those of the last start of this run. They do not apply to its parents. */
  readonly allowChanges?: readonly string[];
  /** Weights to evaluate once instead of training. Absent for a run that trains. */
  readonly evaluation?: EvaluatedWeights;
}

/** Weights that are evaluated without training. */
export interface EvaluatedWeights {
  /** The folder of the checkpoint. Null for the models of the settings. */
  readonly checkpoint: string | null;
  /** The iteration of the evaluation in its records. */
  readonly iteration: number;
}

/** Loads a config. Raises one ConfigError with every problem. */
export async function loadConfig(request: LoadRequest): Promise<LoadedConfig> {
  const evaluation = await evaluate(request);
  refuseExperiment(evaluation.value, request.file);
  return settle(request, evaluation);
}

/** Raises ConfigError if the file is an experiment. */
function refuseExperiment(value: unknown, file: string): void {
  if (!isObject(value) || 'task' in value || !('base' in value) || !('axes' in value)) return;
  throw new ConfigError("found an experiment (it has 'base' and 'axes'); allowed: the config of one run", {
    where: displayPath(file),
    next: `editrl plan ${file} shows the runs of an experiment, and editrl sweep ${file} trains them.`,
  });
}

/** The layers of a config. */
export function layersOf({ file, overlays = [] }: Pick<LoadRequest, 'file' | 'overlays'>): Layer[] {
  return [file, ...overlays].map((path) => ({ name: null, file: path, prefix: [] }));
}

/** Evaluates `file + overlay + overlay…` in one go. */
export async function evaluate({ file, overlays = [], env = process.env }: LoadRequest): Promise<Evaluation> {
  const over = overlays.length === 0 ? [] : [...overlays.map((path) => overlayOf(path, false)), withoutReach];
  const snippet = [importOf(file), ...over].join(' + ');
  return evaluateSnippet({ file, roots: [file, ...overlays], snippet, environment: env });
}

/** The one config of an evaluation. Raises one ConfigError with every problem. */
export function settle(request: LoadRequest, { value, sources, importHash }: Evaluation): LoadedConfig {
  const { file, overlays = [], sets = [], env = process.env } = request;
  const known = [value];
  const has = (key: string): boolean => known.some((one) => hasPath(one, key));
  const origin: Origin = { file, layers: layersOf(request), sets, sources, has };
  if (!isObject(value)) throw tracedError([{ key: 'the file', message: notAnObject(value) }], origin);
  const overlaid = overlays.length > 0;
  const draft = draftOf(value, { file, env, overlaid, sets, sources, roots: [file, ...overlays] });
  known.push(draft.value);
  const settled = settleDraft(draft, new Settler(), { importHash, file, overlays, sets });
  if ('problems' in settled) throw tracedError(settled.problems, origin);
  return settled;
}

/** A config in canonical form before it is validated. */
export interface Draft extends CanonicalForm {
  /** The configs of the runs that it starts from. */
  readonly references: readonly FoundReference[];
  /** Problems with these references. */
  readonly misplaced: readonly Problem[];
}

export interface DraftRequest extends Omit<FormRequest, 'folders'> {
  readonly sources: ReadonlyMap<string, string>;
  /** The merged files. See `placeReferences`. */
  readonly roots: readonly string[];
}

/** Converts an evaluated config, which is modified, to its canonical form. */
export function draftOf(raw: Record<string, unknown>, { sources, roots, ...request }: DraftRequest): Draft {
  const form = canonicalForm(raw, { ...request, folders: foldersOf(request.file, sources) });
  const { references, problems: misplaced } = placeReferences(form.value, request.file, roots, sources);
  return { ...form, references, misplaced };
}

/** Validates, completes, freezes and hashes a config, or returns all of its problems. */
export function settleDraft(
  { value, problems, misplaced, warnings, words }: Draft,
  settler: Settler,
  from: Pick<LoadedConfig, 'importHash' | 'file' | 'overlays' | 'sets' | 'experiment'>,
): LoadedConfig | { readonly problems: readonly Problem[] } {
  const settled = settler.settle(value);
  const found = [...misplaced, ...('problems' in settled ? settled.problems : [])];
  const all = [...problems, ...(words?.problems(found) ?? found)];
  if (all.length > 0 || 'problems' in settled) return { problems: all };
  const remarks = settled.warnings.map((warning) => words?.text(warning) ?? warning);
  return Object.freeze({ ...settled, warnings: [...warnings, ...remarks], ...from });
}

/** The origin of the value of each given canonical key, such as `FILE:LINE`: 'default' for the schema's default, '?' if unknown. */
export async function originsOf(request: LoadRequest, keys: readonly string[]): Promise<string[]> {
  const { file, overlays = [], sets = [], env = process.env } = request;
  const { value, sources } = await evaluate(request);
  const raw = value as Record<string, unknown>;
  const written = structuredClone(raw);
  const folders = foldersOf(file, sources);
  const { words } = canonicalForm(raw, { file, env, overlaid: overlays.length > 0, sets, folders });
  const requestedKeys = keys.map((key) => words?.key(key) ?? key);
  const has = (key: string): boolean => hasPath(written, key);
  const places = placesOf(requestedKeys, { file, layers: layersOf(request), sets, sources, has });
  return places.map((place, i) => (place === '' ? (has(requestedKeys[i]) ? '?' : 'default') : place));
}

interface CanonicalForm {
  readonly value: Record<string, unknown>;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
  /** Rewords problems with the keys of EARL's flat form. Null for a file in canonical form. */
  readonly words: FlatWords | null;
}

interface FormRequest {
  readonly file: string;
  readonly env: Environment;
  /** Whether overlays were merged over the file. */
  readonly overlaid: boolean;
  readonly sets?: readonly string[];
  /** Folders for its relative paths. See `foldersOf`. */
  readonly folders: readonly string[];
}

/** The folders of all files of a config. Its own comes first. */
export function foldersOf(file: string, sources: ReadonlyMap<string, string>): string[] {
  return [...new Set([resolve(file), ...sources.keys()].map((path) => dirname(path)))];
}

/**
 * The form of a config that is validated: `--set` applied, EARL's flat form translated, spellings normalized. `raw` is modified.
 */
function canonicalForm(raw: Record<string, unknown>, request: FormRequest): CanonicalForm {
  const { file, env, overlaid, sets = [], folders } = request;
  const changes = sets.map(parseSet);
  if (!isFlat(raw)) {
    const problems = applyChanges(raw, changes);
    if (!('run_name' in raw)) raw['run_name'] = externalVariables(file, env)['APP__RUN_NAME'];
    const placed = placeModules(normalize(raw), folders);
    return { value: placed.value, problems: [...problems, ...placed.problems], warnings: [], words: null };
  }
  const { APP__DATA_DIR: dataDir } = externalVariables(file, env);
  const translated = translateFlat(raw, { stem: fileStem(file), dataDir, overlaid, changes });
  const placed = placeModules(normalize(translated.value), folders);
  return { ...translated, value: placed.value, problems: [...translated.problems, ...placed.problems] };
}

/** The config file of another run. Its path is relative to the config that names it. */
export function referencedFile(parent: Pick<LoadedConfig, 'file'>, reference: RunReference): string {
  return displayPath(resolve(dirname(parent.file), reference.config));
}

/**
 * Loads the config of another run. It gets the overlays that reach it and, from --set, only the folder of runs. The reference gives the run's name.
 */
export async function loadReferenced(
  parent: LoadedConfig,
  reference: RunReference,
  env: Environment = process.env,
): Promise<LoadedConfig> {
  const request = { ...reachingRequest(parent, reference), env: { ...env, APP__RUN_NAME: reference.run } };
  if (!existsSync(request.file)) throw noConfig(parent, reference, request.file);
  const { file, overlays, env: environment } = request;
  const { values, ...evaluation } = await evaluateParents({ file, overlays, environment }, [
    { name: reference.run, file, mixins: [] },
  ]);
  return settle(request, { ...evaluation, value: values[0] });
}

/** Names the key of a missing config, and the file that has the key. */
function noConfig(parent: LoadedConfig, { run, config }: RunReference, looked: string): ConfigError {
  const key = modelsOf(parent.settings).find(({ reference }) => 'run' in reference && reference.run === run)?.key;
  return new ConfigError(`${key ?? 'the model'}.config: found '${config}', but there is no ${displayPath(looked)}`, {
    where: displayPath(parent.file),
    next: `Write the path of the config that makes ${run}, relative to the file that names it.`,
  });
}

/**
 * `loadReferenced` for configs that start from the same runs: equal loads are evaluated once. A failure is repeated for each config that names the run.
 */
export function loadingOnce(load: typeof loadReferenced = loadReferenced): typeof loadReferenced {
  const loaded = new Map<string, Promise<LoadedConfig>>();
  return (parent, reference) => {
    const key = JSON.stringify([reachingRequest(parent, reference), reference.run]);
    const known = loaded.get(key) ?? load(parent, reference);
    loaded.set(key, known);
    return known;
  };
}

/** The part of a request that applies to the config of another run. */
function reachingRequest(
  parent: LoadedConfig,
  reference: RunReference,
): Required<Pick<LoadRequest, 'file' | 'overlays' | 'sets'>> {
  // The folder of runs may have moved since the run started.
  const moved = reachingParents(parent.sets).length > 0;
  return {
    file: referencedFile(parent, reference),
    overlays: parent.overlays,
    sets: moved ? [`base_exp_dir=${JSON.stringify(parent.settings.base_exp_dir)}`] : [],
  };
}

function notAnObject(value: unknown): string {
  const kind = Array.isArray(value) ? 'a list' : `the ${typeof value} ${JSON.stringify(value)}`;
  return `evaluates to ${kind}; allowed: an object`;
}

/** Normalizes equivalent spellings: an endpoint without a path or with /v1, a mode with * or x, no mode beside terms, one measure or a list. */
function normalize(given: Record<string, unknown>): Record<string, unknown> {
  const { reward, validation } = given;
  const { canonicalMeasure } = rewardForms();
  const normalized = isObject(reward) ? normalizeReward(reward) : null;
  const raw =
    isObject(validation) && 'measure' in validation
      ? {
          ...given,
          validation: { ...validation, measure: canonicalMeasure(validation['measure'], normalized?.['terms']) },
        }
      : given;
  return normalized === null ? raw : { ...raw, reward: normalized };
}

function normalizeReward(reward: Record<string, unknown>): Record<string, unknown> {
  const normalized = { ...reward };
  if ('endpoint' in reward) normalized['endpoint'] = canonicalEndpoint(reward['endpoint']);
  // The default mode applies to a config without a reward.
  return { ...normalized, ...rewardForms().canonicalTerms(reward) };
}

/** The base URL of an endpoint, or of each endpoint in a list. See `openAiBaseUrl`. */
export function canonicalEndpoint(endpoint: unknown): unknown {
  if (Array.isArray(endpoint)) return endpoint.map(canonicalEndpoint);
  if (typeof endpoint !== 'string' || !/^https?:\/\//.test(endpoint) || !URL.canParse(endpoint)) return endpoint;
  return openAiBaseUrl(endpoint);
}
