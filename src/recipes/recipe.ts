/**
 * What other modules need to know about a recipe, as pure functions of its settings. It is as light as a schema, because the config loads it. All
 * members are required, so that a recipe which forgets a need does not compile. They are methods, so that recipes with different settings fit into
 * one table; `recipeOf` pairs settings with their recipe.
 */
import type { DataSizes, FedPerStep, ModelShape, ShapeOf } from './shared/memory.js';
import type { z } from 'zod';
import type { ForeignRecipe, TrainableRecipe } from '../config/recipes.js';
import type { TrainedParts } from '../compute/nets/vision/config.js';
import { measuredReward, type RewardSettings } from '../rewards/schema/reward.js';
import type { PictureServer } from '../config/schema/editor.js';
import type { lora, ModelReference } from '../config/schema/model.js';
import type { TrainedSettings } from '../config/schema/run.js';
import type { ProgressColumn } from '../run/progress.js';
import type { Message } from '../models/chat/template.js';
import type { RemoteSampling } from '../train/policies/vllm/remote_sampling.js';
import type { Rule } from '../config/schema/rules.js';

/** A run that this program's workers train. */
export interface TrainedRecipe<S extends TrainedSettings = TrainedSettings> extends TrainableRecipe<S> {
  /** Dotted keys of its engine sections; the first is the learner's. */
  readonly engines: readonly [string, ...string[]];
  /** The section `reward`; null if nothing is scored. */
  reward(settings: S): RewardSettings | null;
  /** The remote server that samples its answers; null if the policy's own engine does. */
  sampler(settings: S): RemoteSampling | null;
  /** The server that makes pictures of its answers; null if none does. */
  images(settings: S): PictureServer | null;
  /** Estimated number of parameters that it trains; null if the settings do not tell. */
  parameters(settings: S, shapeOf: ShapeOf): number | null;
  /** Estimated bytes of one process, right within a factor of two; null if the settings do not tell. */
  memory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number | null;
  /** The part of `memory` for models that make pictures. */
  imageMemory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number;
  /** The shape of the model that the run makes; null for another kind of model, or if unknown. */
  shape(settings: S, shapeOf: ShapeOf): ModelShape | null;
  /** What a step of decoding its answers is fed on CUDA from the memory of one of so many processes; null if its own engine decodes none, or the settings do not tell. */
  fedPerStep(settings: S, shapeOf: ShapeOf, processes: number): FedPerStep | null;
  /** Micro-batches of one optimizer step: processes beyond that have nothing to compute. */
  microBatches(settings: S): number;
  /** The columns of a run's line per iteration. */
  columns(settings: S): readonly ProgressColumn[];
  /** The setting that may end a run before its last iteration, with its value; null if there is none. */
  patience(settings: S): { readonly key: string; readonly value: number } | null;
  /** What has to exist before it is trained; checked before its parents are trained. That models exist at all is checked for every recipe. */
  needs(settings: S, shapeOf: ShapeOf): readonly Need[];
}

/** A conversation like those of a run. */
export interface ExampleConversation {
  readonly messages: readonly Message[];
  readonly variables: Readonly<Record<string, unknown>>;
}

/** Something on this machine that can be checked without computing; `launch/preflight/needs.ts` has one line for each kind. */
export type Need =
  | {
      readonly kind: 'flow_part';
      readonly part: 'vae' | 'text_encoder' | 'image_encoder';
      readonly folder: string;
    }
  | {
      readonly kind: 'flow_model';
      readonly folder: string;
      readonly trains: 'all' | 'adapter' | 'lora';
      readonly lora: z.output<typeof lora> | null;
      /** The new IP-Adapter for it. */
      readonly begun: { readonly tokens: number; readonly scale: number } | null;
      /** The guidance under which it answers before the run has taught it anything; null for none. */
      readonly guidance: number | null;
    }
  /** A frozen flow model. `family`: the model_type that a whole pipeline's folder has to have; absent: the transformer's folder alone will do. */
  | {
      readonly kind: 'frozen_flow';
      readonly folder: string;
      readonly guidance: number | null;
      readonly family?: string;
    }
  /** A guided flow model that a run makes, with the share of pictures that it is shown without words. */
  | { readonly kind: 'guidance'; readonly section: 'policy' | 'environment'; readonly dropout: number }
  | { readonly kind: 'datalist'; readonly path: string }
  /** A datalist of edits, the first of which is read too. */
  | { readonly kind: 'edits'; readonly path: string }
  | { readonly kind: 'rows'; readonly path: string; readonly columns: readonly string[] }
  /** A list of questions about videos, whose samples have to be complete; the first one's video is opened. */
  | {
      readonly kind: 'questions';
      readonly path: string;
      readonly media: string | null;
      readonly frames: { readonly min: number; readonly max: number; readonly interval: number };
    }
  | { readonly kind: 'ffmpeg' }
  | {
      readonly kind: 'self_bench';
      readonly path: string;
      /** Whether a reward reads the text that each prompt quotes. */
      readonly quoted: boolean;
      /** Both sides of every picture have to be multiples of this. */
      readonly side: number;
      /** The side of the squares that pictures are scaled to; null: they keep their size. */
      readonly resolution: number | null;
    }
  | {
      readonly kind: 'decoder';
      readonly folder: string;
      readonly lora: z.output<typeof lora> | null;
      /** The longest sequence that it will get. */
      readonly contextSize: number;
      /** For a model that has to see: the parts that train; absent: it only reads words. */
      readonly sees?: TrainedParts;
    }
  | {
      readonly kind: 'tokenizer';
      readonly folder: string;
      /** A conversation like the run's, which its chat template has to accept; null if the template is not used. */
      readonly conversation: ExampleConversation | null;
      /** The folder of the model that reads its tokens; null if not known yet. */
      readonly model: string | null;
    }
  | {
      /** A vocabulary of words and images. */
      readonly kind: 'joint_vocabulary';
      readonly tokenizer: string;
      /** The folders of the model that reads its tokens, and of the image tokenizer of its codes; null if not known yet. */
      readonly model: string | null;
      readonly images: string | null;
    }
  /** What is read of a model that a server trains and that sees. */
  | { readonly kind: 'sight'; readonly folder: string }
  | { readonly kind: 'vision_tokenizer'; readonly folder: string };

/** The folder that a reference names; null if it names another run or a repository, whose folder is not known yet. */
export function folderOf(reference: ModelReference | null): string | null {
  return typeof reference === 'string' ? reference : null;
}

/** Every dataset of a run. */
export function sourcesOf(data: TrainedSettings['data']): readonly { readonly path: string }[] {
  return [...(data?.train ?? []), ...(data?.validation ?? [])];
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
  needs?(settings: S, shapeOf: ShapeOf): readonly Need[];
  /** Bytes of the frozen models that make pictures. */
  imageMemory?(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number;
  images?(settings: S): PictureServer | null;
  warnings?(settings: S): readonly string[];
  missing?(settings: S): readonly string[];
}

/** The model that a run trains. */
export interface Learner<S extends TrainedSettings> {
  /** Dotted key of its engine. */
  readonly engine: string;
  /** Dotted key of the model that it starts from; null if it always starts from random weights. */
  readonly start: string | null;
  /** Estimated number of parameters that it trains; null if the settings do not tell. */
  parameters(settings: S, shapeOf: ShapeOf): number | null;
  /** Estimated bytes of one process, without those of `Part.imageMemory`; null if the settings do not tell. */
  memory(settings: S, shapeOf: ShapeOf, sizes?: DataSizes): number | null;
  shape(settings: S, shapeOf: ShapeOf): ModelShape | null;
  sampler?(settings: S): RemoteSampling | null;
  /** What a decoding step is fed on CUDA; absent if nothing is decoded. */
  fedPerStep?(settings: S, shapeOf: ShapeOf, processes: number): FedPerStep | null;
  /** Number of rows that the episodes of an iteration become in training; absent if nothing is learnt from rewards. */
  rows?(settings: S): number;
}

/** A recipe by its parts, in the order in which their rules and needs are checked, with overrides of its own. */
export type Preset<S extends TrainedSettings> = Pick<TrainedRecipe<S>, 'name' | 'schema' | 'pipeline' | 'usedAt'> &
  Partial<TrainedRecipe<S>> & { readonly parts: readonly Part<S>[] };

/** Datasets that are checked one by one. */
export function datasets<S extends TrainedSettings>(needOf: (path: string, settings: S) => Need): Part<S> {
  return { needs: (settings) => sourcesOf(settings.data).map(({ path }) => needOf(path, settings)) };
}

/** Pictures with captions. */
export const captionedPictures = datasets((path) => ({ kind: 'rows', path, columns: ['file_name', 'text'] }));

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
    fedPerStep: (settings, shapeOf, processes) => learns.fedPerStep?.(settings, shapeOf, processes) ?? null,
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
    needs: (settings, shapeOf) => all((part) => part.needs?.(settings, shapeOf)),
    warnings: (settings) => all((part) => part.warnings?.(settings)),
    missing: (settings) => all((part) => part.missing?.(settings)),
    ...own,
  };
}

/** Optimizer steps of one iteration. */
export function stepsPerIteration({ algorithm }: Pick<TrainedSettings, 'algorithm'>): number {
  return algorithm.type === 'sft' ? 1 : algorithm.inner_epochs * algorithm.minibatches;
}

/** The problem of a policy that starts neither from a model nor from random weights; `besides` is another name of the key. */
export function startMissing(
  { policy }: { readonly policy: { readonly model: unknown; readonly init: unknown } },
  besides = '',
): string[] {
  if (policy.model !== null || policy.init !== null) return [];
  return [
    `policy.model is null: set it to a local path, {hub, revision} or {run, config}${besides}, or set policy.init to start from random weights`,
  ];
}
