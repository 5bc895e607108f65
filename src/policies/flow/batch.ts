/** A flow policy's prompts and answers. Pictures are rows of numbers here: latents, packed into the model's tokens. */
import type { Answer, Group } from '../policy.js';
import type { Gaussian } from './steps.js';

/** What the model sees besides the noisy latents. */
export interface FlowCondition {
  /** Height and width of the latents in tokens; tokens are stored row by row. */
  readonly rows: number;
  readonly columns: number;
  /** [T, width of the text encoder] */
  readonly text: Float32Array;
  /** How many of the T tokens are text; the rest is padding, which the model does not see. Default: all. */
  readonly textTokens?: number;
  /** What guidance is measured from, in place of the text, with its own number of tokens before padding, and of the summary. Default: zeros. */
  readonly without?: {
    readonly text: Float32Array;
    readonly textTokens?: number;
    readonly pooled?: Float32Array | null;
  };
  /** [width of the pooled text], for a model that takes it. */
  readonly pooled: Float32Array | null;
  /** [width of the image encoder] features of the style image, for a model with an IP-Adapter. */
  readonly imageFeatures: Float32Array | null;
  /** [rows * columns, C'] appended to the channels of every latent token: an inpainting context. C' may be 0. */
  readonly context: Float32Array;
  /** For a model that sees the unpainted part as further tokens; absent for any other. */
  readonly kept?: KeptPicture;
  /** Pictures that are looked at after `kept`, in their order; absent: none. */
  readonly further?: readonly FurtherPicture[];
}

/** A picture that is looked at, of a size of its own. */
export interface FurtherPicture {
  /** Height and width in tokens. */
  readonly rows: number;
  readonly columns: number;
  /** [rows * columns, C] latents. */
  readonly shown: Float32Array;
}

/**
 * The part of a picture that stays while the rest is painted. After each step of the solver it is restored, at that step's noise level, so that the
 * model decides only the painted elements: only these enter log-probabilities, divergences and losses.
 */
export interface KeptPicture {
  /** [N, C] latents of the picture without the part to be painted. */
  readonly shown: Float32Array;
  /** [N, C]: 1 where it is painted, else 0; at least one element is 1. */
  readonly painted: Float32Array;
}

/** A prompt that a flow policy can answer. */
export interface FlowRequest {
  readonly flow: FlowCondition;
}

/** One drawn array: a noisy step of the solver, or the velocity of a labelled picture. */
export interface FlowAction {
  /** The noise level at which the model is evaluated. */
  readonly sigma: number;
  /** [N, C] the model's input; empty on ranks that do not hold the answer. */
  readonly x: Float32Array;
  /** [N, C] what was drawn; empty on ranks that do not hold the answer. */
  readonly drawn: Float32Array;
  readonly gaussian: Gaussian;
}

export interface FlowAnswer extends Answer {
  readonly actions: readonly FlowAction[];
  /** [N, C] the final latents; empty on ranks that do not hold the answer. */
  readonly latents: Float32Array;
  /** The only rank that holds its pictures; absent: every rank does. */
  readonly home?: number;
}

export type FlowGroup = Group<FlowRequest, FlowAnswer>;
