/**
 * The parts of recipes and rewards that configs need, although these rooms are above this one. The table of recipes registers itself here when it is
 * imported. Every program that reads settings imports that table first.
 */
import type { PipelineType } from '@huggingface/hub';
import type { z } from 'zod';
import { InternalError } from '../core/errors.js';
import type { HubReference, RunReference } from './schema/model.js';
import type { PartialSettings, Problem } from './schema/rules.js';
import type { RunSettings, TrainedSettings } from './schema/run.js';

interface CommonRecipe<S extends RunSettings> {
  /** The value of a config's `task`. */
  readonly name: S['task'];
  readonly schema: z.ZodObject;
  /** The problems that its rules between fields find. Every recipe rejects a run that names itself as a model. */
  broken(settings: PartialSettings<S>): readonly Problem[];
}

/** A run of a foreign trainer, which reads the settings itself. */
export interface ForeignRecipe<S extends RunSettings = RunSettings> extends CommonRecipe<S> {
  readonly trainer: 'another program';
}

/** A run that our own workers train. */
export interface TrainableRecipe<S extends TrainedSettings = TrainedSettings> extends CommonRecipe<S> {
  readonly trainer: 'this program';
  /**
   * Dotted keys of models, which may be other runs, in the order in which these are made. Models of reward terms come from the reward.
   */
  readonly models: readonly string[];
  /** The keys of `models` of which only the tokenizer is read. */
  readonly tokenizers: readonly string[];
  /** Optimizer steps of one iteration. */
  stepsPerIteration(settings: S): number;
  /** Warnings about valid settings. */
  warnings(settings: S): readonly string[];
  /** Things that a run needs and valid settings lack, one line each. Such settings are a base for others. */
  missing(settings: S): readonly string[];
  /** The Hub's `pipeline_tag` of the trained model. Null if the Hub has none. */
  readonly pipeline: PipelineType | null;
  /** The key at which configs of another recipe use the trained model. */
  readonly usedAt: { readonly key: string; readonly of: string };
}

type Recipe = TrainableRecipe | ForeignRecipe;

/** A run or a model of the Hub, with the key that names it. */
export interface NamedModel {
  readonly key: string;
  readonly reference: RunReference | HubReference;
}

/** A term that measures answers, with its fields. The rewards have the types of the fields. */
export interface Measure {
  readonly name: string;
}

/** How configs name rewards. */
export interface RewardForms {
  /** One spelling for the names of a mode that mean the same. */
  readonly canonicalMode: (mode: unknown) => unknown;
  /** The terms of a reward section, and its mode, in canonical form. */
  readonly canonicalTerms: (reward: Readonly<Record<string, unknown>>) => Record<string, unknown>;
  /** `validation.measure` as a list of terms, with fields from `reward.terms` in canonical form. */
  readonly canonicalMeasure: (measure: unknown, rewardTerms?: unknown) => unknown;
  /** The schema of a list of measures. */
  readonly measures: z.ZodType<readonly Measure[]>;
  /** The reward of valid settings, with their `validation.measure`. Null if nothing scores the answers. */
  readonly settingsOf: (settings: RunSettings) => { readonly measure?: readonly Measure[] } | null;
  /** The name of a measure in metrics. */
  readonly metricOf: (measure: Measure) => string;
  /** The models that the reward's terms name. */
  readonly modelsOf: (settings: TrainedSettings) => readonly NamedModel[];
  /** SHA-256 over a reward module and its imports. Null if it cannot be read. */
  readonly moduleDigest: (file: string) => string | null;
}

interface Registered {
  readonly recipes: Readonly<Record<string, Recipe>>;
  /** The recipe of EARL's flat files. */
  readonly flat: Recipe;
  readonly rewards: RewardForms;
  /** The URL of the module that registers them, which other processes of the program import. */
  readonly module: string;
}

let registered: Registered | null = null;

/** Called once by the table of recipes. */
export function registerRecipes(table: Registered): void {
  registered = table;
}

function table(): Registered {
  if (registered === null) throw new InternalError('settings were read before the table of recipes was imported');
  return registered;
}

/** Every recipe. */
export function allRecipes(): readonly Recipe[] {
  return Object.values(table().recipes);
}

/** The recipe of a config's `task`, which may be any value. Undefined if there is none. */
export function recipeNamed(task: unknown): Recipe | undefined {
  const { recipes } = table();
  return typeof task === 'string' && Object.hasOwn(recipes, task) ? recipes[task] : undefined;
}

/** The recipe of valid settings. */
export function recipeOf(settings: TrainedSettings): TrainableRecipe;
export function recipeOf(settings: Pick<RunSettings, 'task'>): Recipe;
export function recipeOf({ task }: Pick<RunSettings, 'task'>): Recipe {
  const recipe = recipeNamed(task);
  if (recipe === undefined) throw new InternalError(`settings of no known recipe: ${task}`);
  return recipe;
}

/** Whether our own workers train it. */
export function isTrainable(settings: RunSettings): settings is TrainedSettings {
  return recipeOf(settings).trainer === 'this program';
}

/** The recipe of EARL's flat files. */
export function flatRecipe(): Recipe {
  return table().flat;
}

/** How configs name rewards. */
export function rewardForms(): RewardForms {
  return table().rewards;
}

/** The URL of the module to import in another process that reads settings. */
export function recipesModule(): string {
  return table().module;
}
