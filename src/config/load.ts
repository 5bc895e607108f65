/** From a Jsonnet file to frozen settings: evaluate once, apply --set, translate, validate, hash. */
import { dirname, resolve } from 'node:path';
import { UsageError } from '../core/errors.js';
import { decidingTerms, recordedTerms } from '../rewards/choice.js';
import { canonicalMode } from '../rewards/settings.js';
import { isFlat, translateFlat } from './flat.js';
import { growable, optimizerSteps } from './growth.js';
import { resultHash } from './hash.js';
import { displayPath, evaluate, type Environment, type Evaluation } from './jsonnet.js';
import { getPath, setPath } from './paths.js';
import { configError, type Origin, type Problem } from './problems.js';
import { isObject } from '../schema/walk.js';
import type { HubReference, ModelReference, RunReference, Settings, TaskName } from './settings.js';
import { validate } from './validate.js';

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
  readonly settings: Settings;
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

/** The keys at which a task names models, which may be other runs; in the order in which these are made. */
export const referencePaths: Readonly<Record<TaskName, readonly string[]>> = {
  image_edit_tokens: ['environment.model', 'policy.tokenizer', 'policy.model'],
  image_tokenizer: [],
  external: [],
};

/** The runs that must be finished before this one, without repetition, in the order of the keys that name them. */
export function dependencies(settings: Settings): RunReference[] {
  const references = [
    ...referencePaths[settings.task].map((path) => getPath(settings, path) as ModelReference | null),
    ...termModels(settings).map(({ reference }) => reference),
  ];
  const runs = references.filter(
    (reference) => reference !== null && typeof reference === 'object' && 'run' in reference,
  );
  return runs.filter((run, index) => runs.findIndex((other) => other.run === run.run) === index);
}

/** The models of the reward's terms that are runs or on the Hub; a text is a folder, or the name of a judge's model. */
function termModels(settings: Settings): { readonly key: string; readonly reference: RunReference | HubReference }[] {
  if (settings.task !== 'image_edit_tokens') return [];
  const { reward } = settings;
  const key = reward.terms.length > 0 ? 'reward.terms' : 'reward.mode';
  const named = [
    ...decidingTerms(reward).map((term) => ({ ...term, key })),
    ...recordedTerms(reward).map((term) => ({ ...term, key: 'reward.also_compute' })),
  ];
  return named.flatMap(({ key, kind, fields: { model } }) =>
    isObject(model)
      ? [{ key: `${key}, ${kind.name}`, reference: model as unknown as RunReference | HubReference }]
      : [],
  );
}

/** Why a valid config cannot run yet, one line each; empty when nothing is in its way. */
export function cannotRunYet(settings: Settings): string[] {
  const reasons: string[] = [];
  // Another trainer reads its own data and its own models.
  if (settings.launch.command !== null || settings.task === 'external') return reasons;
  if (settings.data.train.length === 0) reasons.push('data.train is empty: name at least one datalist to train on');
  if (settings.task !== 'image_edit_tokens') return reasons;
  const references = {
    'policy.model': settings.policy.model,
    'policy.tokenizer': settings.policy.tokenizer,
    'environment.model': settings.environment.model,
  };
  for (const { key, reference } of termModels(settings)) {
    if (!('hub' in reference)) continue;
    reasons.push(
      `${key}: loading Hub models (${reference.hub}) is not available in this version; name the folder of an ONNX export of it as the model of this term in reward.terms`,
    );
  }
  const fromHub = Object.entries(references).flatMap(([key, reference]) =>
    reference !== null && typeof reference === 'object' && 'hub' in reference ? [`${key} (${reference.hub})`] : [],
  );
  if (fromHub.length > 0) {
    reasons.push(
      `loading Hub models is not available in this version: ${fromHub.join(', ')}; at laptop size: --with configs/lib/tiny.libsonnet`,
    );
  }
  return reasons;
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

/** What a person should know about settings that are valid. */
export function warningsOf(settings: Settings): string[] {
  const warnings: string[] = [];
  if (settings.task !== 'external' && settings.data.validation.some(({ coefficient }) => coefficient !== null)) {
    warnings.push(
      'data.validation: coefficient has no effect; of each held-out set the same prompts are evaluated once',
    );
  }
  if (
    settings.task !== 'external' &&
    !growable(settings) &&
    optimizerSteps(settings) <= settings.algorithm.warmup_steps
  ) {
    warnings.push(
      `optimizer.schedule: '${settings.optimizer.schedule}' has no effect; the run ends within its ${settings.algorithm.warmup_steps} warm-up steps`,
    );
  }
  if (settings.track.push_to_hub !== null) {
    warnings.push('track.push_to_hub: publishing on the Hub is not available in this version; nothing is pushed');
  }
  if (settings.track.wandb !== null) {
    warnings.push('track.wandb: forwarding to W&B is not available in this version; metrics stay in the run directory');
  }
  return warnings;
}

/** Freezes a value and all that it holds. */
export function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null) {
    for (const child of Object.values(value)) deepFreeze(child);
    Object.freeze(value);
  }
  return value;
}
