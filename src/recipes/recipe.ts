/**
 * The interface of recipes: pure functions of a recipe's settings.
 * The config loads this file, so it imports little. All members are required: a recipe that omits one does not compile.
 * Members are methods, so that recipes with different settings fit into one table. `recipeOf` pairs settings with their
 * recipe.
 */
import type { DataSizes, ModelShape, ShapeOf } from './shared/memory.js';
import type { ForeignRecipe, TrainableRecipe } from '../config/recipes.js';
import { measuredReward, type RewardSettings } from '../rewards/schema/reward.js';
import type { ImageServer } from '../config/schema/editor.js';
import type { TrainedSettings } from '../config/schema/run.js';
import type { ProgressColumn } from '../run/progress.js';
import type { RunResolver } from '../models/reference.js';
import type { TokenFormat, TokenPrompt } from '../models/tokenizer/format.js';
import type { TrainingContext } from '../train/context.js';
import type { Training } from '../train/loop.js';
import type { RemoteSampling } from '../train/policies/vllm/remote_sampling.js';
import type { PromptRoom } from '../train/scoring/prompt_room.js';
import type { SampledSet } from '../train/scoring/sample_rows.js';
import type { Prompt, Task } from '../train/scoring/task.js';
import type { Rule } from '../config/schema/rules.js';

/** A recipe whose runs editrl's workers train. */
export interface TrainedRecipe<S extends TrainedSettings = TrainedSettings> extends TrainableRecipe<S> {
  /** Dotted keys of its engine sections. The first is the learner's. */
  readonly engines: readonly [string, ...string[]];
  /** The section `reward`. Null if nothing is scored. */
  reward(settings: S): RewardSettings | null;
  /** The remote server that samples answers. Null if the policy's own engine samples. */
  sampler(settings: S): RemoteSampling | null;
  /** The server that renders answers as images. Null if there is none. */
  images(settings: S): ImageServer | null;
  /** Estimated number of trained parameters. Null if the settings do not determine it. */
  parameters(settings: S, shapeOf: ShapeOf): number | null;
  /** Estimated bytes of one process, within a factor of two. Null if the settings do not determine it. */
  memory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number | null;
  /** The part of `memory` for models that generate images. */
  imageMemory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number;
  /** The shape of the trained model. Null for other kinds of models, or if unknown. */
  shape(settings: S, shapeOf: ShapeOf): ModelShape | null;
  /** Micro-batches of one optimizer step. More processes than that would be idle. */
  microBatches(settings: S): number;
  /** Columns of the progress line of an iteration. */
  columns(settings: S): readonly ProgressColumn[];
  /** The key and value of the setting that may stop a run early. Null if there is none. */
  patience(settings: S): { readonly key: string; readonly value: number } | null;
}

/** Every dataset of a run. */
export function sourcesOf(data: TrainedSettings['data']): readonly { readonly path: string }[] {
  return [...(data?.train ?? []), ...(data?.validation ?? [])];
}

/** A check of files on this machine that computes nothing. */
export interface Check {
  /** The check's name. Runs with the same check share it. */
  readonly name: string;
  /** Raises EditrlError for the first problem. */
  readonly run: () => void;
  /** A warning after the check has passed. Null if there is none. */
  readonly remark?: () => string | null;
}

/** An edit that a user requests. */
export interface WantedEdit {
  /** Absolute path of the image. */
  readonly image: string;
  readonly instruction: string;
  /** Number of rows. Each is sampled with its own random numbers. */
  readonly count: number;
  /** An empty folder for the dataset. */
  readonly folder: string;
}

/** How a recipe is opened. Methods, so that recipes with different settings fit into one table. */
export interface OpenRecipe<S extends TrainedSettings = TrainedSettings> {
  /** Makes data that the config needs and that does not exist yet, from finished parent runs. */
  makeData(settings: S, resolveRun: RunResolver, say: (line: string) => void): Promise<void>;
  /**
   * Checks of this machine for the run, made before its parents are trained. Every recipe's models are checked for
   * existence separately.
   */
  checks(settings: S, shapeOf: ShapeOf): readonly Check[];
  /** Connects the recipe's parts and returns the training of this rank. */
  open(settings: S, context: TrainingContext): Promise<Training>;
  /**
   * Opens the task that scores recorded episodes again. Null if answers are not scored. Raises EditrlError when data or
   * models are gone.
   */
  openTask(settings: S, resolveRun: RunResolver): Promise<Task<Prompt, unknown> | null>;
  /**
   * The first `count` rows of each dataset, with answers that need no model. Empty if answers are not scored, or if
   * images need a model.
   * Draws data of the tiny world that does not exist yet. Raises the DataErrors of opening the datasets.
   */
  sampleRows(settings: S, count: number): Promise<readonly SampledSet[]>;
  /**
   * Writes an edit as a held-out dataset of this recipe and returns its path. Absent if the recipe cannot edit the
   * user's images.
   * Raises EditrlError if a model is gone, and DataError for an image that cannot be read.
   */
  writeEdit?(settings: S, resolveRun: RunResolver, edit: WantedEdit): Promise<string>;
  /**
   * Context left for answers, by dataset. Absent if the context of answers contains no prompt.
   * Raises EditrlError when data or models are gone, and DataError for an invalid prompt.
   */
  promptRoom?(settings: S, resolveRun: RunResolver): Promise<readonly PromptRoom[]>;
  /**
   * The token format of answers that a training server samples. Absent for text answers. Raises EditrlError when
   * the tokenizer is gone.
   */
  servedFormat?(settings: S, resolveRun: RunResolver): TokenFormat<TokenPrompt>;
}

export type Recipe = TrainedRecipe | ForeignRecipe;

/** Progress columns of a policy that learns from rewards. */
export const rewardColumns: readonly ProgressColumn[] = [
  { label: 'reward', metric: 'reward/mean', width: 6, digits: 3, sticky: false },
  { label: 'KL', metric: 'policy/kl', width: 7, digits: 4, sticky: false },
  { label: 'entropy', metric: 'policy/entropy', width: 6, digits: 3, sticky: false },
];

/** Progress columns of a model that learns from labels. */
export const lossColumns: readonly ProgressColumn[] = [
  { label: 'loss', metric: 'policy/loss', width: 7, digits: 4, sticky: false },
  { label: 'held-out loss', metric: 'validation/loss', width: 7, digits: 4, sticky: true },
];

/** A part of a recipe: its policy, data, environment or learning. It omits the members that it adds nothing to. */
export interface Part<S extends TrainedSettings = TrainedSettings> {
  readonly rules?: readonly Rule<S>[];
  /** Dotted keys of the frozen models that it names, in the order in which these are trained. */
  readonly models?: readonly string[];
  /** The keys of `models` of which it reads only the tokenizer. */
  readonly tokenizers?: readonly string[];
  /** Dotted keys of engine sections, without the learner's. */
  readonly engines?: readonly string[];
  /** The learner. Exactly one part of a recipe has one. */
  readonly learns?: Learner<S>;
  /** Bytes of the frozen models that generate images. */
  imageMemory?(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number;
  images?(settings: S): ImageServer | null;
  warnings?(settings: S): readonly string[];
  missing?(settings: S): readonly string[];
}

/** The model that a run trains. */
export interface Learner<S extends TrainedSettings> {
  /** Dotted key of its engine. */
  readonly engine: string;
  /** Dotted key of the starting model. Null if it always starts from random weights. */
  readonly start: string | null;
  /** Estimated number of trained parameters. Null if the settings do not determine it. */
  parameters(settings: S, shapeOf: ShapeOf): number | null;
  /** Estimated bytes of one process, without `Part.imageMemory`. Null if the settings do not determine it. */
  memory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number | null;
  shape(settings: S, shapeOf: ShapeOf): ModelShape | null;
  sampler?(settings: S): RemoteSampling | null;
  /** Number of training rows from the episodes of an iteration. Absent if nothing is learned from rewards. */
  rows?(settings: S): number;
}

/** A recipe made of parts, with its own overrides. Rules are checked in the order of the parts. */
export type Preset<S extends TrainedSettings> = Pick<TrainedRecipe<S>, 'name' | 'schema' | 'pipeline' | 'usedAt'> &
  Partial<TrainedRecipe<S>> & { readonly parts: readonly Part<S>[] };

/** Assembles the recipe. */
export function preset<S extends TrainedSettings>({ parts, ...own }: Preset<S>): TrainedRecipe<S> {
  const [learns] = parts.flatMap((part) => part.learns ?? []);
  const isScored = 'reward' in own.schema.shape;
  const all = <T>(of: (part: Part<S>) => readonly T[] | undefined): T[] => parts.flatMap((part) => of(part) ?? []);
  const rules = all((part) => part.rules);
  const imageMemory = (settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number =>
    parts.reduce((sum, part) => sum + (part.imageMemory?.(settings, shapeOf, sizes) ?? 0), 0);
  return {
    trainer: 'this program',
    broken: (settings) => rules.flatMap((rule) => rule(settings)),
    models: [...all(({ models }) => models), ...(learns.start === null ? [] : [learns.start])],
    tokenizers: all(({ tokenizers }) => tokenizers),
    engines: [learns.engine, ...all(({ engines }) => engines)],
    reward: (settings) =>
      isScored ? measuredReward(settings as unknown as Parameters<typeof measuredReward>[0]) : null,
    sampler: (settings) => learns.sampler?.(settings) ?? null,
    images: (settings) => parts.flatMap((part) => part.images?.(settings) ?? []).at(0) ?? null,
    parameters: (settings, shapeOf) => learns.parameters(settings, shapeOf),
    memory: (settings, shapeOf, sizes) => {
      const trained = learns.memory(settings, shapeOf, sizes);
      return trained === null ? null : trained + imageMemory(settings, shapeOf, sizes);
    },
    imageMemory,
    shape: (settings, shapeOf) => learns.shape(settings, shapeOf),
    stepsPerIteration,
    microBatches: (settings) => {
      const { algorithm, optimizer } = settings;
      const rows =
        algorithm.type === 'sft' ? algorithm.sft.batch_size : (learns.rows?.(settings) ?? 0) / algorithm.minibatches;
      return Math.ceil(rows / optimizer.per_device_batch_size);
    },
    columns: ({ algorithm }) => (algorithm.type === 'sft' ? lossColumns : rewardColumns),
    patience: ({ algorithm }) =>
      algorithm.type !== 'sft' || algorithm.sft.patience === null
        ? null
        : { key: 'algorithm.sft.patience', value: algorithm.sft.patience },
    warnings: (settings) => all((part) => part.warnings?.(settings)),
    missing: (settings) => all((part) => part.missing?.(settings)),
    ...own,
  };
}

/** Optimizer steps of one iteration. */
export function stepsPerIteration({ algorithm }: Pick<TrainedSettings, 'algorithm'>): number {
  return algorithm.type === 'sft' ? 1 : algorithm.inner_epochs * algorithm.minibatches;
}

/** The problem of a policy without a model and without random initial weights. `alias` is another name of the key. */
export function startMissing(
  { policy }: { readonly policy: { readonly model: unknown; readonly init: unknown } },
  alias = '',
): string[] {
  if (policy.model !== null || policy.init !== null) return [];
  return [
    `policy.model is null: set it to a local path, {hub, revision} or {run, config}${alias}, or set policy.init to start from random weights`,
  ];
}
