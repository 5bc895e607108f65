/** From a Jsonnet file to frozen settings: evaluate once, apply --set, translate, validate, hash. */
import { dirname, resolve } from 'node:path';
import { UsageError } from '../core/errors.js';
import { canonicalMode } from '../rewards/settings.js';
import type { Problem } from '../recipes/rules.js';
import type { RunReference } from '../schema/model.js';
import { getPath, setPath } from '../schema/paths.js';
import type { RunSettings } from '../schema/run.js';
import { isObject } from '../schema/walk.js';
import { isFlat, translateFlat } from './flat.js';
import { resultHash } from './hash.js';
import { displayPath, evaluate, type Environment, type Evaluation } from './jsonnet.js';
import { configError, type Origin } from './problems.js';
import { validate } from './validate.js';
import { warningsOf } from './warnings.js';

export interface LoadRequest {
  /** The config. */
  readonly file: string;
  /** Files merged over it with `+`, in order. */
  readonly overlays?: readonly string[];
  /** `a.b=value`, applied last; the value is JSON, or else a text. */
  readonly sets?: readonly string[];
  /** Where the external variables come from; the process's environment unless given. */
  readonly env?: Environment;
}

export interface LoadedConfig {
  /** Fully defaulted and deeply frozen. */
  readonly settings: RunSettings;
  /** Hash over the `result` fields. */
  readonly resultHash: string;
  /** Hash over the content of every Jsonnet file that took part. */
  readonly importHash: string;
  readonly warnings: readonly string[];
  /** The settings are those of the run's own record; `file` only says where they came from at first. */
  readonly fromRecord?: true;
  readonly file: string;
  readonly overlays: readonly string[];
  readonly sets: readonly string[];
  /** Settings that decide the result and may differ from those that the run was last started with; of this run, not of its parents. */
  readonly allowChanges?: readonly string[];
}

/** Loads a config. Raises one ConfigError that holds every problem. */
export async function loadConfig(request: LoadRequest): Promise<LoadedConfig> {
  const { file, overlays = [], env = process.env } = request;
  return settle(request, await evaluate(file, overlays, env));
}

/**
 * Everything of `loadConfig` after the evaluation of the same file, overlays and environment, whose value it changes.
 * Raises one ConfigError that holds every problem.
 */
export function settle(request: LoadRequest, evaluation: Evaluation): LoadedConfig {
  const { file, overlays = [], sets = [] } = request;
  const origin: Origin = { file, sources: evaluation.sources, sets };
  const problems: Problem[] = [];
  const raw = rootObject(evaluation, origin);
  problems.push(...applySets(raw, sets));
  const translated = canonicalForm(raw);
  problems.push(...translated.problems);
  const validated = validate(translated.value);
  if ('problems' in validated) problems.push(...validated.problems);
  if (problems.length > 0 || !('settings' in validated)) throw configError(problems, origin);
  const { settings } = validated;
  return Object.freeze({
    settings: deepFreeze(settings),
    resultHash: resultHash(settings),
    importHash: evaluation.importHash,
    warnings: [...translated.warnings, ...warningsOf(settings)],
    file,
    overlays,
    sets,
  });
}

export interface CanonicalForm {
  readonly value: Record<string, unknown>;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
}

/** What a config evaluates to in the one form that is validated: flat dialects translated, spellings made equal. */
export function canonicalForm(raw: Record<string, unknown>): CanonicalForm {
  const translated = isFlat(raw) ? translateFlat(raw) : { value: raw, problems: [], warnings: [] };
  return { ...translated, value: normalise(translated.value) };
}

/** The file of the config that makes another run: its path is relative to the config that names it. */
export function referencedFile(parent: Pick<LoadedConfig, 'file'>, reference: RunReference): string {
  return displayPath(resolve(dirname(parent.file), reference.config));
}

/**
 * Loads the config that makes another run: relative to the config that names it, with the same overlays, without its --set.
 * The run's name is the one that the reference gives.
 */
export async function loadReferenced(
  parent: LoadedConfig,
  reference: RunReference,
  env: Environment = process.env,
): Promise<LoadedConfig> {
  return loadConfig({
    file: referencedFile(parent, reference),
    overlays: parent.overlays,
    env: { ...env, APP__RUN_NAME: reference.run },
  });
}

function rootObject(evaluation: Evaluation, origin: Origin): Record<string, unknown> {
  if (isObject(evaluation.value)) return evaluation.value;
  const kind = Array.isArray(evaluation.value)
    ? 'a list'
    : `the ${typeof evaluation.value} ${JSON.stringify(evaluation.value)}`;
  throw configError([{ key: 'the file', message: `evaluates to ${kind}; allowed: an object` }], origin);
}

/** Splits `a.b=value`; a value that is not JSON is a text. Raises UsageError when there is no key or no `=`. */
export function parseSet(text: string): { path: string; value: unknown } {
  const at = text.indexOf('=');
  const path = text.slice(0, Math.max(at, 0));
  if (!/^[\w-]+(\.[\w-]+)*$/.test(path)) {
    throw new UsageError(`--set ${text}: found no key=value`, {
      next: 'Write it as --set optimizer.learning_rate=1e-5.',
    });
  }
  const content = text.slice(at + 1);
  try {
    return { path, value: JSON.parse(content) as unknown };
  } catch {
    return { path, value: content };
  }
}

function applySets(raw: Record<string, unknown>, sets: readonly string[]): Problem[] {
  return sets.flatMap((text) => {
    const { path, value } = parseSet(text);
    const blockedAt = setPath(raw, path, value);
    if (blockedAt === null) return [];
    const blocking = JSON.stringify(getPath(raw, blockedAt));
    return [{ key: path, message: `cannot be set: ${blockedAt} is ${blocking}; set ${blockedAt} as a whole` }];
  });
}

/** Spellings that mean the same get one form: an endpoint with or without /v1, a mode with * or x, no mode beside terms. */
function normalise(raw: Record<string, unknown>): Record<string, unknown> {
  const reward = raw['reward'];
  if (!isObject(reward)) return raw;
  const normalised = { ...reward };
  if ('endpoint' in reward) normalised['endpoint'] = canonicalEndpoint(reward['endpoint']);
  if ('mode' in reward) normalised['mode'] = canonicalMode(reward['mode']);
  // The default mode is for a config that says nothing about its reward.
  else if (Array.isArray(reward['terms']) && reward['terms'].length > 0) normalised['mode'] = null;
  if (Array.isArray(reward['terms'])) normalised['terms'] = reward['terms'].map(canonicalTerm);
  if (Array.isArray(reward['also_compute'])) normalised['also_compute'] = reward['also_compute'].map(canonicalMode);
  return { ...raw, reward: normalised };
}

function canonicalTerm(term: unknown): unknown {
  return isObject(term) && 'name' in term ? { ...term, name: canonicalMode(term['name']) } : term;
}

/** `http://host:4877`, with or without a final slash or /v1, is `http://host:4877/v1`; so is each of a list. */
export function canonicalEndpoint(endpoint: unknown): unknown {
  if (Array.isArray(endpoint)) return endpoint.map(canonicalEndpoint);
  if (typeof endpoint !== 'string' || !/^https?:\/\//.test(endpoint)) return endpoint;
  return `${endpoint.replace(/\/+$/, '').replace(/\/v1$/, '')}/v1`;
}

/** Freezes a value and all that it holds. */
export function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) {
    for (const child of Object.values(value)) deepFreeze(child);
    Object.freeze(value);
  }
  return value;
}
