/**
 * What other modules need to know about a recipe, as pure functions of its settings. It is as light as a schema, because the config loads it. All
 * members are required, so that a recipe which forgets a need does not compile. They are methods, so that recipes with different settings fit into
 * one table; `recipeOf` pairs settings with their recipe.
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

/** A run that this program's workers train. */
export interface TrainedRecipe<S extends TrainedSettings = TrainedSettings> extends TrainableRecipe<S> {
  /** Dotted keys of its engine sections. The first is the learner's. */
  readonly engines: readonly [string, ...string[]];
  /** The section `reward`. Null if nothing is scored. */
  reward(settings: S): RewardSettings | null;
  /** The remote server that samples its answers. Null if the policy's own engine does. */
  sampler(settings: S): RemoteSampling | null;
  /** The server that renders its answers as images. Null if none does. */
  images(settings: S): ImageServer | null;
  /** Estimated number of parameters that it trains. Null if the settings do not decide it. */
  parameters(settings: S, shapeOf: ShapeOf): number | null;
  /** Estimated bytes of one process, right within a factor of two. Null if the settings do not decide it. */
  memory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number | null;
  /** The part of `memory` for models that make images. */
  imageMemory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number;
  /** The shape of the model that the run makes. Null for another kind of model, or if unknown. */
  shape(settings: S, shapeOf: ShapeOf): ModelShape | null;
  /** Micro-batches of one optimizer step: processes beyond that have nothing to compute. */
  microBatches(settings: S): number;
  /** The columns of a run's line per iteration. */
  columns(settings: S): readonly ProgressColumn[];
  /** The setting that may end a run before its last iteration, with its value. Null if there is none. */
  patience(settings: S): { readonly key: string; readonly value: number } | null;
}

/** Every dataset of a run. */
export function sourcesOf(data: TrainedSettings['data']): readonly { readonly path: string }[] {
  return [...(data?.train ?? []), ...(data?.validation ?? [])];
}

/** A check of this machine's files, without computing. */
export interface Check {
  /** Equal for equal checks, which several runs share. */
  readonly name: string;
  /** Raises EditrlError for the first problem. */
  readonly run: () => void;
  /** A warning after the check has passed. Null if there is none. */
  readonly remark?: () => string | null;
}

/** An edit that a user asks for. */
export interface WantedEdit {
  /** Absolute path of the image. */
  readonly image: string;
  readonly instruction: string;
  /** Number of rows: each is sampled with random numbers of its own. */
  readonly count: number;
  /** An empty folder to write into. */
  readonly folder: string;
}

/** How a recipe is opened. Methods, so that recipes with different settings fit into one table. */
export interface OpenRecipe<S extends TrainedSettings = TrainedSettings> {
  /** Makes data that a config needs and that does not exist yet, from the finished runs that it depends on. */
  makeData(settings: S, resolveRun: RunResolver, say: (line: string) => void): Promise<void>;
  /** Checks of what the run needs on this machine. They run before its parents are trained. That models exist is checked for every recipe. */
  checks(settings: S, shapeOf: ShapeOf): readonly Check[];
  /** Wires the recipe's parts and returns its training, on every rank. */
  open(settings: S, context: TrainingContext): Promise<Training>;
  /**
   * Opens what is needed to score its recorded episodes again. Null if its answers are not scored. Raises EditrlError when data or models are gone.
   */
  openTask(settings: S, resolveRun: RunResolver): Promise<Task<Prompt, unknown> | null>;
  /**
   * The first `count` rows of each dataset, with answers that need no model. None if answers are not scored, or if images need a model. Draws data
   * of the tiny world that is not made yet. Raises DataError as opening the datasets does.
   */
  sampleRows(settings: S, count: number): Promise<readonly SampledSet[]>;
  /**
   * Writes an edit as a held-out dataset of this recipe and returns its path. Absent if the recipe edits no images of the user. Raises EditrlError
   * if a model is gone, and DataError for an image that cannot be read.
   */
  writeEdit?(settings: S, resolveRun: RunResolver, edit: WantedEdit): Promise<string>;
  /**
   * How much room the context leaves for answers, dataset by dataset. Absent if answers have no prompt before them in the context. Raises EditrlError
   * when data or models are gone, and DataError for a prompt that cannot be asked.
   */
  promptRoom?(settings: S, resolveRun: RunResolver): Promise<readonly PromptRoom[]>;
  /** The tokens of answers that a training server samples. Absent if they are words. Raises EditrlError when its tokenizer is gone. */
  servedFormat?(settings: S, resolveRun: RunResolver): TokenFormat<TokenPrompt>;
}

export type Recipe = TrainedRecipe | ForeignRecipe;

/** For a policy that learns from rewards. */
export const rewardColumns: readonly ProgressColumn[] = [
  { label: 'reward', metric: 'reward/mean', width: 6, digits: 3, sticky: false },
  { label: 'KL', metric: 'policy/kl', width: 7, digits: 4, sticky: false },
  { label: 'entropy', metric: 'policy/entropy', width: 6, digits: 3, sticky: false },
];

/** For a model that learns from labels. */
export const lossColumns: readonly ProgressColumn[] = [
  { label: 'loss', metric: 'policy/loss', width: 7, digits: 4, sticky: false },
  { label: 'held-out loss', metric: 'validation/loss', width: 7, digits: 4, sticky: true },
];

/** A part of a recipe: its policy, its data, its environment, or how it learns. It omits members that it has nothing to add to. */
export interface Part<S extends TrainedSettings = TrainedSettings> {
  readonly rules?: readonly Rule<S>[];
  /** Dotted keys at which it names frozen models, in the order in which these are made. */
  readonly models?: readonly string[];
  /** The keys of `models` of which only the tokenizer is read. */
  readonly tokenizers?: readonly string[];
  /** Dotted keys of engine sections, except for the learner's. */
  readonly engines?: readonly string[];
  /** The learner; exactly one part of a recipe has it. */
  readonly learns?: Learner<S>;
  /** Bytes of the frozen models that make images. */
  imageMemory?(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number;
  images?(settings: S): ImageServer | null;
  warnings?(settings: S): readonly string[];
  missing?(settings: S): readonly string[];
}

/** The model that a run trains. */
export interface Learner<S extends TrainedSettings> {
  /** Dotted key of its engine. */
  readonly engine: string;
  /** Dotted key of the model that it starts from. Null if it always starts from random weights. */
  readonly start: string | null;
  /** Estimated number of parameters that it trains. Null if the settings do not decide it. */
  parameters(settings: S, shapeOf: ShapeOf): number | null;
  /** Estimated bytes of one process, without those of `Part.imageMemory`. Null if the settings do not decide it. */
  memory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number | null;
  shape(settings: S, shapeOf: ShapeOf): ModelShape | null;
  sampler?(settings: S): RemoteSampling | null;
  /** Number of rows that the episodes of an iteration become in training. Absent if nothing is learned from rewards. */
  rows?(settings: S): number;
}

/** A recipe by its parts, in the order in which their rules are checked, with overrides of its own. */
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
