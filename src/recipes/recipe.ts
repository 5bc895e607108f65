/**
 * What everybody else must know of a recipe, as pure functions of its settings. It is as light as a schema: the config reads it. All
 * members are required, so that a recipe which forgets a need does not compile. They are methods, so that recipes of different settings
 * stand in one table; `recipeOf` gives each settings of its own kind.
 */
import type { z } from 'zod';
import type { TrainedParts, VisionConfig } from '../nets/vision/config.js';
import type { RewardSettings } from '../rewards/schema/reward.js';
import type { PictureServer } from '../schema/editor.js';
import type { DecoderInit, lora, ModelReference } from '../schema/model.js';
import type { RunSettings, TrainedSettings } from '../schema/run.js';
import type { ProgressColumn } from './columns.js';
import type { ExampleConversation } from './example_conversation.js';
import type { Rule } from './rules.js';
import type { RemoteSampling } from './sampler.js';

interface RecipeCommon<S extends RunSettings> {
  /** What a config's `task` says. */
  readonly name: S['task'];
  readonly schema: z.ZodObject;
  /** What must hold between fields; that no model is the run itself is looked at for every recipe. */
  readonly rules: readonly Rule[];
}

/** A run whose trainer is another program: what that needs, it finds in the settings itself. */
export interface ForeignRecipe<S extends RunSettings = RunSettings> extends RecipeCommon<S> {
  readonly trainer: 'another program';
}

/** A run that this program's workers train. */
export interface TrainedRecipe<S extends TrainedSettings = TrainedSettings> extends RecipeCommon<S> {
  readonly trainer: 'this program';
  /** Dotted keys at which it names models, which may be other runs: in the order in which these are made. Reward terms' are found by `reward`. */
  readonly models: readonly string[];
  /** Those of `models` of which the tokenizer alone is read. */
  readonly tokenizers: readonly string[];
  /** Dotted keys of its engine sections; the first computes what learns. */
  readonly engines: readonly [string, ...string[]];
  /** The section `reward`; null where nothing is scored. */
  reward(settings: S): RewardSettings | null;
  /** What samples its answers elsewhere; null where the policy's own engine does. */
  sampler(settings: S): RemoteSampling | null;
  /** The server that makes pictures of its answers; null where none does. */
  images(settings: S): PictureServer | null;
  /** How many parameters it trains, estimated; null where the settings do not tell. */
  parameters(settings: S, shapeOf: ShapeOf): number | null;
  /** Estimated bytes of one process, good to a factor of two; null where the settings do not tell. */
  memory(settings: S, shapeOf: ShapeOf, sizeIn?: SizeIn): number | null;
  /** Of `memory`, the bytes of what makes pictures. */
  imageMemory(settings: S, shapeOf: ShapeOf): number;
  /** The shape of the model that the run makes; null for one of another kind, or not known. */
  shape(settings: S, shapeOf: ShapeOf): ModelShape | null;
  /** Optimizer steps of one iteration. */
  stepsPerIteration(settings: S): number;
  /** Micro-batches of one optimizer step: processes beyond that have nothing to compute. */
  microBatches(settings: S): number;
  /** What a run's line per iteration shows. */
  columns(settings: S): readonly ProgressColumn[];
  /** The setting that may end a run before its last iteration, with its value; null where none does. */
  patience(settings: S): { readonly key: string; readonly value: number } | null;
  /** What has to be there before it is trained, and is looked at before its parents are. That models are there at all is looked at for every recipe. */
  needs(settings: S, shapeOf: ShapeOf): readonly Need[];
  /** What a person should know about settings that are valid. */
  warnings(settings: S): readonly string[];
  /** What valid settings leave open that a run has to have, one line each; such settings are a base for others. */
  missing(settings: S): readonly string[];
}

/** Something on this machine that can be looked at without computing; `launch/preflight/needs.ts` has one line for each kind. */
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
      /** The IP-Adapter that is begun on it. */
      readonly begun: { readonly tokens: number; readonly scale: number } | null;
      /** Under which guidance it answers before the run has taught it anything; null for none. */
      readonly guidance: number | null;
    }
  /** A flow model that stays as it is. */
  | { readonly kind: 'frozen_flow'; readonly folder: string; readonly guidance: number | null }
  /** A flow model that a run makes, guided: of pictures, it is shown so large a share without words. */
  | { readonly kind: 'guidance'; readonly section: 'policy' | 'environment'; readonly dropout: number }
  | { readonly kind: 'datalist'; readonly path: string }
  /** A datalist of edits, of which the first is read, too. */
  | { readonly kind: 'edits'; readonly path: string }
  | { readonly kind: 'rows'; readonly path: string; readonly columns: readonly string[] }
  /** A list of questions about videos, whose samples are to be whole, and the first's video is opened. */
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
      /** Both sides of every picture are to be multiples of it. */
      readonly side: number;
      /** The side of the squares that pictures are brought to; null: they are taken as they are. */
      readonly resolution: number | null;
    }
  | {
      readonly kind: 'decoder';
      readonly folder: string;
      readonly lora: z.output<typeof lora> | null;
      /** The longest sequence that it is given. */
      readonly contextSize: number;
      /** Of a model that has to see: the parts that train; absent: it reads words alone. */
      readonly sees?: TrainedParts;
    }
  | {
      readonly kind: 'tokenizer';
      readonly folder: string;
      /** A conversation such as the run's are, which its chat template has to take; null where none is written with it. */
      readonly conversation: ExampleConversation | null;
      /** The folder of the model that reads its tokens; null where that is not known yet. */
      readonly model: string | null;
    }
  | {
      /** A vocabulary of words and images. */
      readonly kind: 'joint_vocabulary';
      readonly tokenizer: string;
      /** The folders of the model that reads its tokens, and of the image tokenizer of its codes; null where they are not known yet. */
      readonly model: string | null;
      readonly images: string | null;
    }
  | { readonly kind: 'vision_tokenizer'; readonly folder: string };

/** The folder that a reference names; null where it names another run or a repository, whose folder is not known yet. */
export function folderOf(reference: ModelReference | null): string | null {
  return typeof reference === 'string' ? reference : null;
}

/** Every dataset of a run. */
export function sourcesOf(data: TrainedSettings['data']): readonly { readonly path: string }[] {
  return [...(data?.train ?? []), ...(data?.validation ?? [])];
}

export type Recipe = TrainedRecipe | ForeignRecipe;

/** What of a model decides its memory, and who can use it. */
export type ModelShape = DecoderShape | FlowModelShape | AutoencoderShape | GraphsShape;

/** Of a frozen model that is read as graphs: CLIP, or what an image model's prompts are read by. */
export interface GraphsShape {
  readonly kind: 'graphs';
  /** What its weights take. */
  readonly bytes: number;
}

/** Of an autoencoder of pictures. */
export interface AutoencoderShape {
  readonly kind: 'autoencoder';
  /** A side of a picture by that of its latents. */
  readonly reduction: number;
}

/** Of a flow transformer. */
export interface FlowModelShape {
  readonly kind: 'flow';
  readonly width: number;
  readonly heads: number;
  readonly layers: number;
  readonly singleLayers: number;
  /** Width of a text token. */
  readonly textWidth: number;
  /** Side of the square of pixels that one token stands for. */
  readonly patch: number;
  /** Its IP-Adapter: tokens, and the width of the features of a style image; null for none. */
  readonly imagePrompt: { readonly tokens: number; readonly width: number } | null;
  /** The share of pictures that it is shown without words, which guidance is measured from; null where nobody says, or it is told the guidance. */
  readonly conditionDropout: number | null;
}

/** Of a decoder. */
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
  /** Absent where the vocabulary is made with the data. */
  readonly vocab_size?: number;
  /** Of a model that sees. */
  readonly vision?: VisionShape;
};

/** Of a vision encoder with its connector. */
export type VisionShape = Pick<
  VisionConfig,
  'depth' | 'width' | 'inner' | 'num_heads' | 'patch_size' | 'temporal_patch_size' | 'spatial_merge_size'
>;
/** The shape of the model that a reference names; null where it is not known before it is opened. */
export type ShapeOf = (reference: ModelReference) => ModelShape | null;
/** The largest picture of the dataset at a path; null where none can be read. */
export type SizeIn = (path: string) => { readonly width: number; readonly height: number } | null;
