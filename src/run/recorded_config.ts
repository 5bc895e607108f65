/** Loads the config from a run's record, to resume the run without its config file. */
import { existsSync, lstatSync, readdirSync, statSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { resultHash } from '../config/hash.js';
import { canonicalEndpoint, type LoadedConfig } from '../config/load.js';
import { placeModules } from '../config/references.js';
import { configError } from '../config/problems.js';
import { rewardForms } from '../config/recipes.js';
import { parseSet } from '../config/sets.js';
import { validate } from '../config/validate.js';
import { RunError, UsageError } from '../core/errors.js';
import { shellQuote } from '../core/process.js';
import { getPath, setPath } from '../core/schema/walk.js';
import type { Problem } from '../config/schema/rules.js';
import type { RunSettings } from '../config/schema/run.js';
import type { RunPaths } from './paths.js';
import type { PlainObject, RunRecord } from './record.js';

/** Settings that `--set` must not change on resume, with the alternative. */
const FIXED: Readonly<Record<string, string>> = {
  run_name: 'To continue under another name: editrl fork RUN --as NAME',
  base_exp_dir: 'Move the folder and name its directory with --exp-dir.',
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
  /** The name of a fork. */
  readonly runName?: string;
  /** Whether to use the record of a run that may belong to another user. */
  readonly trust?: boolean | undefined;
}

/** The settings of a record. Raises RunError for settings that this version does not know. */
export function recordedSettings(recorded: PlainObject): RunSettings {
  const validated = validate(recorded);
  if ('settings' in validated) return validated.settings;
  const problems = validated.problems.map(({ key, message }) => `    ${key}: ${message}`);
  throw new RunError(
    ['this version of editrl does not know the recorded settings of the run:', ...problems].join('\n'),
    {
      next: 'Continue the run with the version in run.json, or run its config under another run_name.',
    },
  );
}

/**
 * The config of a run from `run.json`, with changes applied. Uses the run's actual folder, so a moved run works. Raises ConfigError with every problem,
 * UsageError for a setting that must not change, and RunError for a run that may belong to another user (see `requireOwn`).
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
  // A missing module is reported on use, because other verbs work without it.
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
    throw new UsageError(`--set ${text}: ${section} cannot change when a run continues`, { next: FIXED[section] });
  }
  const blockedAt = setPath(settings, path, CANONICAL[path]?.(value, settings) ?? value);
  if (blockedAt === null) return [];
  const blocking = JSON.stringify(getPath(settings, blockedAt));
  return [{ key: path, message: `cannot be set: ${blockedAt} is ${blocking}; set ${blockedAt} as a whole` }];
}

const ROOT = 0;
/** Mode bit: writable by any user. */
const WORLD_WRITABLE = 0o002;

/** The programs, modules and environment variables in some settings, one line each with its key. */
export function namedPrograms(settings: unknown, at = ''): string[] {
  if (typeof settings !== 'object' || settings === null) return [];
  return Object.entries(settings).flatMap(([name, value]: [string, unknown]) => {
    const key = at === '' ? name : `${at}.${name}`;
    if (name === 'command' && Array.isArray(value)) return [`${key}: ${value.map(String).map(shellQuote).join(' ')}`];
    if (name === 'module' && typeof value === 'string') return [`${key}: ${value}`];
    if (name === 'env' && typeof value === 'object' && value !== null) {
      const entries = Object.entries(value).map(([variable, text]) => `${variable}=${shellQuote(String(text))}`);
      return entries.length === 0 ? [] : [`${key}: ${entries.join(' ')}`];
    }
    return namedPrograms(value, key);
  });
}

/**
 * Raises RunError with the programs in the settings if the run's folder, its record or another entry belongs to another user, or if any user can write
 * the folder or the record. Root's files are trusted.
 *
 * @param settings from the run's record.
 * @param uid the current user. Null on systems without user ids, where nothing is checked.
 */
export function requireOwn(paths: RunPaths, settings: unknown, uid: number | null = process.getuid?.() ?? null): void {
  if (uid === null) return;
  const foreign = foreignFile(paths, uid);
  if (foreign === null) return;
  const programs = namedPrograms(settings);
  const named =
    programs.length === 0 ? '' : `, and its settings use\n${programs.map((line) => `    ${line}`).join('\n')}`;
  throw new RunError(`run '${paths.runName}' may not be yours: ${foreign.why}${named}`, {
    where: foreign.path,
    next: 'Its settings choose the programs that run with your rights and the servers that get your data. If you trust the owner, add --trust. `editrl report` does not need it.',
  });
}

function foreignFile(paths: RunPaths, uid: number): { readonly path: string; readonly why: string } | null {
  for (const path of [paths.dir, paths.record]) {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) continue;
    if (found.uid !== uid && found.uid !== ROOT) return { path, why: `owned by user ${found.uid}` };
    if ((found.mode & WORLD_WRITABLE) !== 0) return { path, why: 'any user can write it' };
  }
  if (!existsSync(paths.dir)) return null;
  for (const name of readdirSync(paths.dir)) {
    const path = join(paths.dir, name);
    const owner = lstatSync(path, { throwIfNoEntry: false })?.uid;
    if (owner !== undefined && owner !== uid && owner !== ROOT) return { path, why: `owned by user ${owner}` };
  }
  return null;
}
