/** Subjects of an evaluation without training: a checkpoint of a run, or a config's model. Each is a config with its own run directory. */
import { existsSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { canonicalJson, resultHash } from '../config/hash.js';
import { loadConfig, type EvaluatedWeights, type LoadedConfig } from '../config/load.js';
import { deepFreeze } from '../config/settle.js';
import { parseSet } from '../config/sets.js';
import { CheckpointError, RunError, UsageError } from '../core/errors.js';
import { sha256 } from '../core/images/image.js';
import { inBrief } from '../core/text.js';
import { benchmarkNames } from '../rewards/benchmarks/table.js';
import { stagingFolder, sweepStaging } from '../core/files.js';
import { hubKey, type RunResolver } from '../models/reference.js';
import { isTrainable } from '../config/recipes.js';
import { recipeOf } from '../recipes/settings.js';
import { listCheckpoints, manifestDigest, requireWhole } from '../run/checkpoints.js';
import { chosenCheckpoint, parseRunSpec, type CheckpointChoice } from '../run/chosen_checkpoint.js';
import { findRun } from '../run/find.js';
import { linkFolder } from '../run/claim/fork.js';
import { iterationName, RunPaths } from '../run/paths.js';
import { readRecord } from '../run/record.js';
import { useDifferentScales, scalesOf } from '../run/report/evaluation.js';
import { recordedConfig } from '../run/recorded_config.js';
import { liveLock } from '../run/status.js';
import { hubReference, runReference } from '../config/schema/model.js';
import type { TrainedSettings } from '../config/schema/run.js';
import { getPath, isObject } from '../core/schema/walk.js';
import { runResolver } from './models/wanted.js';

/** Changes that an evaluation makes to the settings. */
export interface EvaluationChanges {
  /** Held-out datasets in place of `data.validation`. */
  readonly data: readonly string[];
  /** Terms in place of `validation.measure`, as a name or as JSON. */
  readonly measures: readonly string[];
  /** A benchmark in place of the reward, as a name or as JSON. `data` is then its folder. Absent: the run's own reward. */
  readonly benchmark?: string;
  /** `a.b=value`. */
  readonly sets: readonly string[];
  /** Whether to follow the record of a run that may be another user's. */
  readonly trust?: boolean | undefined;
}

/** A checkpoint or model to evaluate. */
export interface EvaluationSubject {
  /** A label such as `sft_s__rl_s at iteration 100`, `sft_s__rl_s with me/model`. */
  readonly label: string;
  /** Its settings name the run directory for the records. */
  readonly config: LoadedConfig & { readonly evaluation: EvaluatedWeights };
  readonly paths: RunPaths;
  /** The run of the checkpoint. Null for a model. */
  readonly run: RunPaths | null;
  /** The same run, if the evaluation changes no setting. Else null. */
  readonly recordedBy: RunPaths | null;
  /** Problems with later checkpoints, which were skipped. */
  readonly problems: readonly string[];
}

/** The sections that an evaluation depends on. `--set` may change their keys. */
const SECTIONS = ['data', 'environment', 'launch', 'policy', 'reader', 'reward', 'rollout', 'validation'];

/** A run's checkpoint. Raises the errors of reading the run, and UsageError for a run that cannot be evaluated. */
export function evaluatedRun(paths: RunPaths, choice: CheckpointChoice, changes: EvaluationChanges): EvaluationSubject {
  const record = readRecord(paths);
  if (record === null) throw new RunError('there is no run here', { where: paths.dir });
  const sets = setsOf(changes, getPath(record.settings, 'data.dir'));
  const config = recordedConfig(paths, record, { sets, trust: changes.trust });
  requireEvaluable(config, paths.runName);
  const checkpoint = chosenCheckpoint(paths, choice);
  const weights = { checkpoint: resolve(checkpoint.dir), iteration: checkpoint.iteration };
  const pinned = runResolver(paths.baseExpDir, () => record);
  return {
    ...subjectOf(paths, config, weights, { resolveRun: pinned, models: record.models ?? {} }),
    label: `${paths.runName} at iteration ${checkpoint.iteration}`,
    run: paths,
    recordedBy: sets.length === 0 ? paths : null,
    problems: checkpoint.problems,
  };
}

/** A config to evaluate. */
export interface ConfigPlace {
  readonly file: string;
  readonly overlays: readonly string[];
  /** Further `--set`s: `base_exp_dir`. */
  readonly sets: readonly string[];
  /** The folder of a run that a model is named by. Empty for the usual folders. */
  readonly expDir: string;
}

/**
 * The model that a config starts from, or another one in its place: a folder (`PATH`), a model of the Hub
 * (`hub:OWNER/NAME[@REVISION]`), or the checkpoint of a run (`run:NAME[@CHECKPOINT]`). Raises the ConfigErrors of `loadConfig`.
 */
export async function evaluatedModel(
  { file, overlays, sets, expDir }: ConfigPlace,
  model: string | null,
  changes: EvaluationChanges,
): Promise<EvaluationSubject> {
  const plain = await loadConfig({ file, overlays, sets });
  const changed = setsOf(changes, getPath(plain.settings, 'data.dir'));
  const named = model === null ? [] : modelSets(plain, model, expDir);
  const config = await loadConfig({ file, overlays, sets: [...named, ...sets, ...changed] });
  requireEvaluable(config, file);
  const paths = RunPaths.of(config.settings);
  const weights = { checkpoint: null, iteration: 0 };
  return {
    ...subjectOf(paths, config, weights, { resolveRun: runResolver(paths.baseExpDir), models: {} }),
    label: `${paths.runName} with ${model ?? 'the model that it starts from'}`,
    run: null,
    recordedBy: null,
    problems: [],
  };
}

/** Datasets are paths, or paths below `data.dir`. Raises UsageError for a key that no evaluation depends on. */
function setsOf({ data, measures, sets, benchmark }: EvaluationChanges, dataDir: unknown): string[] {
  for (const set of sets) {
    const section = parseSet(set).path.split('.')[0];
    if (SECTIONS.includes(section)) continue;
    throw new UsageError(`--set ${set}: found a key of ${section}; allowed: keys of ${SECTIONS.join(', ')}`, {
      next: 'The other settings took effect when the weights were trained.',
    });
  }
  if (benchmark !== undefined) {
    const own = benchmarkSets(benchmark, data, measures);
    rejectOverrides(own, sets);
    return [...own, ...sets];
  }
  const listed = data.map((path) => {
    const places = typeof dataDir === 'string' ? [path, join(dataDir, path)] : [path];
    const found = places.find((place) => existsSync(place));
    return { path: found === undefined ? path : resolve(found) };
  });
  const terms = measures.map((term) => parseSet(`measure=${term}`).value);
  return [
    ...sets,
    ...(data.length === 0 ? [] : [`data.validation=${JSON.stringify(listed)}`]),
    ...(measures.length === 0 ? [] : [`validation.measure=${JSON.stringify(terms)}`]),
  ];
}

/** The lists of a benchmark's folder. Raises UsageError for a folder without any. */
export function benchmarkLists(folder: string): readonly string[] {
  const isFolder = existsSync(folder) && statSync(folder).isDirectory();
  const lists = isFolder ? readdirSync(folder).filter((name) => name.endsWith('.jsonl')) : [];
  if (lists.length > 0) return lists.sort().map((name) => resolve(folder, name));
  throw new UsageError(`--data ${folder}: found no .jsonl files; allowed: a folder that editrl data bench wrote`, {
    next: 'Write it with: editrl data bench … --out FOLDER.',
  });
}

/** The `--set`s that score all edits of a benchmark with its questions instead of the reward. */
function benchmarkSets(benchmark: string, data: readonly string[], measures: readonly string[]): string[] {
  const term = parseSet(`benchmark=${benchmark}`).value;
  const chosen = isObject(term) ? term : { name: term };
  const { name } = chosen as { readonly name?: unknown };
  if (!(benchmarkNames as readonly unknown[]).includes(name)) {
    throw new UsageError(`--benchmark: found ${inBrief(name)}; allowed: ${benchmarkNames.join(', ')}`, {
      next: 'Give further settings as JSON: --benchmark \'{"name": "gedit_v2", "gallery": "gallery", "opponents": ["BAGEL"]}\'.',
    });
  }
  if (data.length !== 1) {
    throw new UsageError(`--benchmark: found ${data.length} folders in --data; allowed: one`, {
      next: 'Name the folder that editrl data bench wrote: --data FOLDER.',
    });
  }
  if (measures.length > 0) throw new UsageError('found --measure with --benchmark; allowed: one of them');
  const [folder] = data;
  const lists = benchmarkLists(folder);
  const most = Math.max(...lists.map((list) => readFileSync(list, 'utf8').split('\n').length));
  const reward = [{ ...chosen, folder: resolve(folder), weight: 1 }];
  return [
    `data.validation=${JSON.stringify(lists.map((path) => ({ path })))}`,
    `validation.prompts=${most}`,
    'validation.measure=[]',
    'reward.mode=null',
    'reward.also_compute=[]',
    `reward.terms=${JSON.stringify(reward)}`,
  ];
}

/** Raises UsageError for a `--set` that replaces the questions or the edits of a benchmark. Their number, and fields of its term, may change. */
function rejectOverrides(own: readonly string[], sets: readonly string[]): void {
  const fixed = own.map((set) => parseSet(set).path).filter((path) => path !== 'validation.prompts');
  for (const set of sets) {
    const { path } = parseSet(set);
    const key = fixed.find((one) => one === path || one.startsWith(`${path}.`));
    if (key === undefined) continue;
    throw new UsageError(`--set ${set}: found with --benchmark, which sets ${key}; allowed: one of them`, {
      next: 'Give settings of the benchmark as JSON: --benchmark \'{"name": "imgedit", "model": "JUDGE"}\'.',
    });
  }
}

function requireEvaluable({ settings }: LoadedConfig, where: string): void {
  if (!isTrainable(settings) || settings.launch.command !== null) {
    throw new UsageError(`${where}: a foreign trainer trains it, and only that trainer can evaluate it`);
  }
  if (settings.data?.validation.length !== 0) return;
  throw new UsageError(`${where}: data.validation is empty`, {
    next: 'Name a dataset: editrl evaluate … --data PATH.',
  });
}

/** The `--set`s that replace the model that a config starts from. */
function modelSets({ settings }: LoadedConfig, model: string, expDir: string): string[] {
  if (!isTrainable(settings) || !recipeOf(settings).models.includes('policy.model')) {
    throw new UsageError(`--model ${model}: a run of task '${settings.task}' starts from no model`);
  }
  const isRandom = getPath(settings, 'policy.init') !== undefined;
  return [...(isRandom ? ['policy.init=null'] : []), `policy.model=${JSON.stringify(modelOf(model, expDir))}`];
}

function modelOf(model: string, expDir: string): unknown {
  const [, kind, name] = /^(run|hub):(.+)$/.exec(model) ?? [];
  if (kind === 'run') {
    const { name: run, checkpoint } = parseRunSpec(name);
    return resolve(chosenCheckpoint(findRun(run, expDir === '' ? undefined : expDir), checkpoint).dir);
  }
  if (kind === 'hub') {
    const [hub, revision] = name.split('@');
    return { hub, ...(revision === undefined ? {} : { revision }) };
  }
  if (existsSync(model)) return resolve(model);
  throw new UsageError(`--model ${model}: no such folder`, {
    next: 'Name a folder, a model of the Hub as hub:OWNER/NAME, or a run as run:NAME or run:NAME@CHECKPOINT.',
  });
}

/** Raises UsageError if two subjects are scored by different rewards and share no measure. */
export function requireCommonNumber([own, other]: readonly Pick<EvaluationSubject, 'label' | 'config'>[]): void {
  if (other === undefined) return;
  const [scales, others] = [own, other].map(({ config }) => scalesOf((path) => getPath(config.settings, path)));
  const isCommon = ([name, identity]: readonly [string, string]): boolean => others.measures.get(name) === identity;
  if (!useDifferentScales(scales, others, null) || [...scales.measures].some(isCommon)) return;
  const labels = [scales, others].map(({ reward }) => reward?.label ?? '');
  const names = labels[0] === labels[1] ? `${labels[0]}, with other fields or another judge` : labels.join(' and ');
  throw new UsageError(
    `--against: the rewards of ${own.label} and of ${other.label} differ (${names}), so their numbers cannot be compared`,
    {
      next: 'Score both by one term: --measure TERM, or by one reward for both: --set reward.terms=[{"name":"TERM","weight":1}].',
    },
  );
}

const PINNED = '.weights-';

/**
 * Calls `work` with the subject's config while its checkpoint cannot be removed. A run that trains on may remove its checkpoints, so the files are
 * linked into another folder until `work` is done. Raises CheckpointError for a checkpoint that has just been removed.
 */
export async function withPinnedCheckpoint<T>(
  { config, run }: Pick<EvaluationSubject, 'config' | 'run'>,
  work: (config: LoadedConfig) => Promise<T>,
): Promise<T> {
  const { checkpoint, iteration } = config.evaluation;
  if (run === null || checkpoint === null || liveLock(run) === null) return work(config);
  sweepStaging(run.evaluationsDir, PINNED);
  const pinned = stagingFolder(run.evaluationsDir, PINNED);
  try {
    const place = join(pinned, iterationName(iteration));
    try {
      linkFolder(checkpoint, place);
      requireWhole(place, iteration);
    } catch (cause) {
      if (existsSync(checkpoint)) throw cause;
      throw new CheckpointError(
        `run ${run.runName} is training and has just removed its checkpoint of iteration ${iteration}`,
        {
          where: checkpoint,
          next: `Run the same command again, or name another one: there are checkpoints of ${listCheckpoints(run).join(', ')}.`,
          cause,
        },
      );
    }
    return await work({ ...config, evaluation: { checkpoint: place, iteration } });
  } finally {
    rmSync(pinned, { recursive: true, force: true });
  }
}

interface PinnedModels {
  readonly resolveRun: RunResolver;
  /** Commits of models of the Hub, by `owner/name@revision`. */
  readonly models: Readonly<Record<string, string>>;
}

/**
 * The config of an evaluation below a run's folder. References to other runs become folders, and models of the Hub get the commits that the run started
 * with, because the evaluation is in another folder than the runs. Nothing is forwarded to trackers.
 */
function subjectOf(
  run: RunPaths,
  config: LoadedConfig,
  evaluation: EvaluatedWeights,
  pinned: PinnedModels,
): Pick<EvaluationSubject, 'config' | 'paths'> {
  const own = withPinnedModels(config.settings, pinned) as TrainedSettings;
  const digest = sha256(
    canonicalJson({ ...own, launch: null, track: null, manifest: manifestDigest(evaluation.checkpoint ?? '') }),
  );
  const settings = deepFreeze({
    ...own,
    base_exp_dir: resolve(run.evaluationsDir),
    run_name: `${iterationName(evaluation.iteration)}-${digest.slice(0, 8)}`,
    launch: { ...own.launch, backend: 'local' as const },
    track: { ...own.track, push_to_hub: null, wandb: null, tensorboard: false },
  });
  return {
    config: { ...config, settings, resultHash: resultHash(settings), evaluation },
    paths: RunPaths.of(settings),
  };
}

function withPinnedModels(value: unknown, pinned: PinnedModels): unknown {
  const run = runReference.safeParse(value);
  if (run.success) return resolve(pinned.resolveRun(run.data));
  const hub = hubReference.safeParse(value);
  if (hub.success) return { ...hub.data, revision: pinned.models[hubKey(hub.data)] ?? hub.data.revision };
  if (Array.isArray(value)) return value.map((one) => withPinnedModels(one, pinned));
  if (!isObject(value)) return value;
  return Object.fromEntries(Object.entries(value).map(([key, one]) => [key, withPinnedModels(one, pinned)]));
}
