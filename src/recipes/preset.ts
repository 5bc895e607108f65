/** Assembles a recipe from its parts: gathers what each part contributes, once for every recipe. */
import { measuredReward } from '../rewards/schema/reward.js';
import type { PictureServer } from '../schema/editor.js';
import type { TrainedSettings } from '../schema/run.js';
import { lossColumns, rewardColumns } from './columns.js';
import type { FedPerStep } from './fed.js';
import { sourcesOf, type ModelShape, type Need, type ShapeOf, type DataSizes, type TrainedRecipe } from './recipe.js';
import type { Rule } from '../schema/rules.js';
import type { RemoteSampling } from './sampler.js';

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
