/** Loads the config that a run's record holds, from which a run is resumed without its config file. */
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

/** Settings that `--set` may not change at a resume, and what to use instead. */
const FIXED: Readonly<Record<string, string>> = {
  run_name: 'To train on under another name: editrl fork RUN --as NAME',
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

const ROOT = 0;
/** Anybody may write. */
const WORLD_WRITABLE = 0o002;

/** The programs and modules that settings name, and the environment that they set: one line each, with its key. */
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
 * Raises RunError, with the programs that the settings name, if the run's folder, its record or another entry belongs to another user, or if anybody may
 * write the folder or the record. Root's files count as one's own.
 *
 * @param settings those of the run's record.
 * @param uid the asking user; null on systems without user numbers, which are not checked.
 */
export function requireOwn(paths: RunPaths, settings: unknown, uid: number | null = process.getuid?.() ?? null): void {
  if (uid === null) return;
  const foreign = foreignFile(paths, uid);
  if (foreign === null) return;
  const programs = namedPrograms(settings);
  const named =
    programs.length === 0 ? '' : `, and its settings name\n${programs.map((line) => `    ${line}`).join('\n')}`;
  throw new RunError(`run '${paths.runName}' may not be yours: ${foreign.why}${named}`, {
    where: foreign.path,
    next: 'Its settings would decide which programs run with your rights and which servers get your data. If you trust its owner, add --trust. `editrl report` reads it without.',
  });
}

function foreignFile(paths: RunPaths, uid: number): { readonly path: string; readonly why: string } | null {
  for (const path of [paths.dir, paths.record]) {
    const found = statSync(path, { throwIfNoEntry: false });
    if (found === undefined) continue;
    if (found.uid !== uid && found.uid !== ROOT) return { path, why: `this belongs to user ${found.uid}` };
    if ((found.mode & WORLD_WRITABLE) !== 0) return { path, why: 'any user may write this' };
  }
  if (!existsSync(paths.dir)) return null;
  for (const name of readdirSync(paths.dir)) {
    const path = join(paths.dir, name);
    const owner = lstatSync(path, { throwIfNoEntry: false })?.uid;
    if (owner !== undefined && owner !== uid && owner !== ROOT) return { path, why: `this belongs to user ${owner}` };
  }
  return null;
}
