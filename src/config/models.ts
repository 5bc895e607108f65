/** The models that settings name, and the runs among them. */
import { ConfigError } from '../core/errors.js';
import type { HubReference, ModelReference, RunReference } from './schema/model.js';
import { getPath, isObject } from '../core/schema/walk.js';
import type { RunSettings } from './schema/run.js';
import { isTrainable, recipeNamed, recipeOf, rewardForms, type NamedModel } from './recipes.js';

/** The keys of settings at which terms are listed with their own fields. */
export const TERM_LISTS = ['reward.terms', 'validation.measure'] as const;

/** The keys of unvalidated settings that may name models, in the order in which these are made. */
export function modelKeys(raw: Readonly<Record<string, unknown>>): string[] {
  const recipe = recipeNamed(raw['task']);
  if (recipe?.trainer !== 'this program') return [];
  const ofTerms = TERM_LISTS.flatMap((key) => {
    const terms = getPath(raw, key);
    return Array.isArray(terms) ? terms.map((_, index) => `${key}.${index}.model`) : [];
  });
  return [...recipe.models, ...ofTerms];
}

/** The runs that must be finished before this one, without duplicates, in the order of the keys that name them. */
export function dependencies(settings: RunSettings): RunReference[] {
  const runs = modelsOf(settings).flatMap(({ reference }) => ('run' in reference ? [reference] : []));
  return runs.filter((run, index) => runs.findIndex((other) => other.run === run.run) === index);
}

/** Reasons why a valid config cannot run yet, one line each. */
export function cannotRunYet(settings: RunSettings): string[] {
  // A foreign trainer reads its own data and models.
  if (settings.launch.command !== null || !isTrainable(settings)) return [];
  const reasons: string[] = [];
  if (settings.data?.train.length === 0) {
    reasons.push("data.train is empty: name at least one datalist to train on (EARL's flat form: train_paths_file)");
  }
  reasons.push(...recipeOf(settings).missing(settings));
  return reasons;
}

/** Raises ConfigError if a config cannot run yet. */
export function checkRunnable({ settings, file }: { readonly settings: RunSettings; readonly file: string }): void {
  const obstacles = cannotRunYet(settings);
  if (obstacles.length > 0) throw new ConfigError(obstacles.join('\n'), { where: file });
}

/** A model of the Hub that a run needs. */
export interface NamedHubModel {
  readonly key: string;
  readonly reference: HubReference;
  /** Whether only its tokenizer is read. */
  readonly tokenizerOnly: boolean;
}

/** The models of the Hub that a run needs, in the order of the keys that name them. */
export function hubModels(settings: RunSettings): NamedHubModel[] {
  // A foreign trainer downloads its own models.
  if (settings.launch.command !== null || !isTrainable(settings)) return [];
  const { tokenizers } = recipeOf(settings);
  return modelsOf(settings).flatMap(({ key, reference }) =>
    'hub' in reference ? [{ key, reference, tokenizerOnly: tokenizers.includes(key) }] : [],
  );
}

/** Cached, because settings never change and this is called often. */
const named = new WeakMap<RunSettings, readonly NamedModel[]>();

/** Every run and Hub model that settings name. */
export function modelsOf(settings: RunSettings): readonly NamedModel[] {
  const known = Object.isFrozen(settings) ? named.get(settings) : undefined;
  if (known !== undefined) return known;
  const found = findModels(settings);
  named.set(settings, found);
  return found;
}

function findModels(settings: RunSettings): NamedModel[] {
  if (!isTrainable(settings)) return [];
  const own = recipeOf(settings).models.flatMap((key) => {
    const reference = getPath(settings, key) as ModelReference | null | undefined;
    return isObject(reference) ? [{ key, reference }] : [];
  });
  return [...own, ...rewardForms().modelsOf(settings)];
}
