/**
 * What other modules need to know about a recipe, as pure functions of its settings. It is as light as a schema, because the config loads it. All
 * members are required, so that a recipe which forgets a need does not compile. They are methods, so that recipes with different settings fit into
 * one table; `recipeOf` pairs settings with their recipe.
 */
import type { z } from 'zod';
import type { ForeignRecipe, TrainableRecipe } from '../config/recipes.js';
import type { ShownList } from '../data/pictured_look.js';
import type { PictureSize } from '../data/pictures.js';
import type { TrainedParts, VisionConfig } from '../nets/vision/config.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import type { PictureServer } from '../schema/editor.js';
import type { DecoderInit, lora, ModelReference } from '../schema/model.js';
import type { TrainedSettings } from '../schema/run.js';
import type { ProgressColumn } from '../run/progress.js';
import type { ExampleConversation } from './example_conversation.js';
import type { FedPerStep } from './fed.js';
import type { RemoteSampling } from './sampler.js';

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

/** What decides a model's memory, and what it can be used for. */
export type ModelShape = DecoderShape | FlowModelShape | AutoencoderShape | ImageTokenizerShape | GraphsShape;

/** For a frozen model that is loaded as graphs: CLIP, or the encoder of an image model's prompts. */
export interface GraphsShape {
  readonly kind: 'graphs';
  /** Bytes of its weights. */
  readonly bytes: number;
  /** The same held in float16; absent: they cannot be. */
  readonly halfBytes?: number;
  /** Those where only what looks at pictures is read of it; absent: as many. */
  readonly visionBytes?: number;
  /** Those where only what reads prompts is read of it; absent: as many. */
  readonly wordsBytes?: number;
  /** The same held in float16; absent: it cannot be. */
  readonly wordsHalfBytes?: number;
  /** Bytes of the layers of what decodes pictures, for each pixel; absent: unknown. */
  readonly bytesPerPixel?: number;
}

/** For an autoencoder of pictures. */
export interface AutoencoderShape {
  readonly kind: 'autoencoder';
  /** Side of a picture divided by that of its latents. */
  readonly reduction: number;
  /** Absent for one that a run makes. */
  readonly decoding?: DecodingShape;
}

/** What decoding pictures takes: bytes of weights, and of the layers for each pixel. */
export interface DecodingShape {
  readonly bytes: number;
  readonly bytesPerPixel: number;
}

/** For a tokenizer of pictures. */
export interface ImageTokenizerShape {
  readonly kind: 'vision_tokenizer';
  /** Side of the square of pixels that one code stands for. */
  readonly patch: number;
  readonly decoding: DecodingShape;
}

/** For a flow transformer. */
export interface FlowModelShape {
  readonly kind: 'flow';
  readonly width: number;
  readonly heads: number;
  readonly layers: number;
  readonly singleLayers: number;
  /** Of the layers, those in which the image attends to itself once more; absent: none. */
  readonly dualLayers?: number;
  /** Numbers of a stored table of positions; absent: none. */
  readonly places?: number;
  /** Width of a text token. */
  readonly textWidth: number;
  /** Side of the square of pixels that one token represents. */
  readonly patch: number;
  /** Whether a picture that it edits lies beside the latents of its own; absent: it is shown as further tokens. */
  readonly shownBeside?: boolean;
  /** Its IP-Adapter: tokens, and the width of the features of a style image; null for none. */
  readonly imagePrompt: { readonly tokens: number; readonly width: number } | null;
  /**
   * The share of pictures that it is shown without words, which guidance is measured from; null if unknown, or if it takes the guidance scale as an
   * input.
   */
  readonly conditionDropout: number | null;
}

/** For a decoder. */
export type DecoderShape = Pick<
  DecoderInit,
  | 'hidden_size'
  | 'intermediate_size'
  | 'num_hidden_layers'
  | 'num_attention_heads'
  | 'num_key_value_heads'
  | 'head_dim'
  | 'tie_word_embeddings'
> & {
  readonly kind?: 'decoder';
  /** Absent if the vocabulary is made with the data. */
  readonly vocab_size?: number;
  /** For a model that sees. */
  readonly vision?: VisionShape;
};

/** For a vision encoder with its connector. */
export type VisionShape = Pick<
  VisionConfig,
  'depth' | 'width' | 'inner' | 'num_heads' | 'patch_size' | 'temporal_patch_size' | 'spatial_merge_size'
>;
/** The shape of the model that a reference names; null if unknown before it is opened. */
export type ShapeOf = (reference: ModelReference) => ModelShape | null;
/** What data shows, as far as it can be read before a run. */
export interface DataSizes {
  /** The largest picture of the dataset at a path; null if none can be read. */
  largest(path: string): PictureSize | null;
  /** The pictures before the edit of rows of a list; a size that is not known is null. */
  shown(list: ShownList): readonly (readonly (PictureSize | null)[])[];
}
