/** Loads the config that a run's record holds, from which a run is resumed without its config file. */
import { dirname } from 'node:path';
import { resultHash } from '../config/hash.js';
import { canonicalEndpoint, type LoadedConfig } from '../config/load.js';
import { placeModules } from '../config/module_files.js';
import { configError } from '../config/problems.js';
import { parseSet } from '../config/sets.js';
import type { RunSettings } from '../schema/run.js';
import { validate } from '../config/validate.js';
import { RunError, UsageError } from '../core/errors.js';
import type { Problem } from '../schema/rules.js';
import { rewardForms } from '../config/recipes.js';
import { getPath, setPath } from '../schema/paths.js';
import type { RunPaths } from './paths.js';
import type { PlainObject, RunRecord } from './record.js';
import { requireOwn } from './trust.js';

/** Settings that `--set` may not change at a resume, and what to use instead. */
const FIXED: Readonly<Record<string, string>> = {
  run_name: 'To train on under another name: editrl resume RUN --from ITERATION --as NAME.',
  base_exp_dir: 'Move the folder, and say where it lies with --exp-dir.',
  task: 'Choose another run_name for another task.',
};

/** Normalizes values of `--set` that have several spellings. */
const CANONICAL: Readonly<Record<string, ((value: unknown, settings: PlainObject) => unknown) | undefined>> = {
  'reward.endpoint': canonicalEndpoint,
  'validation.measure': (measure, settings) =>
    rewardForms().canonicalMeasure(measure, getPath(settings, 'reward.terms')),
};

export interface RecordedRequest {
  /** `a.b=value`, applied to the recorded settings. */
  readonly sets?: readonly string[];
  readonly allowChanges?: readonly string[];
  /** Another name for the run, if it is a fork. */
  readonly runName?: string;
  /** Whether to follow the record of a run that may be another user's. */
  readonly trust?: boolean | undefined;
}

/**
 * Settings of a record. Raises RunError when this version does not know the recorded settings.
 */
export function recordedSettings(recorded: PlainObject): RunSettings {
  const validated = validate(recorded);
  if ('settings' in validated) return validated.settings;
  const problems = validated.problems.map(({ key, message }) => `    ${key}: ${message}`);
  throw new RunError(
    ["the run's recorded settings are not ones that this version of editrl knows:", ...problems].join('\n'),
    {
      next: 'Continue it with the version that wrote them (run.json says which), or run its config under another run_name.',
    },
  );
}

/**
 * The config of a run from `run.json`, with changes applied. Uses the run's actual folder in place of the recorded one, so that a moved run is found.
 * Raises ConfigError with every problem, UsageError for what cannot be set, RunError for a run that may be another user's: see `requireOwn`.
 */
export function recordedConfig(paths: RunPaths, record: RunRecord, request: RecordedRequest = {}): LoadedConfig {
  const { sets = [], allowChanges = [], runName = paths.runName, trust = false } = request;
  if (!trust) requireOwn(paths, record.settings);
  const begun = recordedSettings(record.settings);
  const recorded = structuredClone(begun) as unknown as Record<string, unknown>;
  recorded['base_exp_dir'] = paths.baseExpDir;
  recorded['run_name'] = runName;
  const file = record.config?.file ?? paths.record;
  const problems = sets.flatMap((text) => applySet(recorded, text));
  const placed = placeModules(recorded, [dirname(file)]);
  // A recorded module that is gone is reported where it is needed: other verbs work without it.
  if (sets.length > 0) problems.push(...placed.problems);
  const validated = validate(placed.value);
  if ('problems' in validated) problems.push(...validated.problems);
  if (problems.length > 0 || !('settings' in validated)) {
    throw configError(problems, { file: paths.record, sets });
  }
  return {
    settings: validated.settings,
    resultHash: resultHash(validated.settings),
    importHash: record.import_hash,
    warnings: [],
    fromRecord: true,
    trust,
    file,
    overlays: record.config?.overlays ?? [],
    sets: [...(record.config?.sets ?? []), ...sets],
    allowChanges,
  };
}

function applySet(settings: Record<string, unknown>, text: string): Problem[] {
  const { path, value } = parseSet(text);
  const section = path.split('.')[0];
  if (Object.hasOwn(FIXED, section)) {
    throw new UsageError(`--set ${text}: ${section} stays as it is when a run is continued`, { next: FIXED[section] });
  }
  const blockedAt = setPath(settings, path, CANONICAL[path]?.(value, settings) ?? value);
  if (blockedAt === null) return [];
  const blocking = JSON.stringify(getPath(settings, blockedAt));
  return [{ key: path, message: `cannot be set: ${blockedAt} is ${blocking}; set ${blockedAt} as a whole` }];
}
