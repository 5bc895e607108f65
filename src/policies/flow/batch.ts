/** What a flow policy is asked and answers with. Pictures are rows of numbers here: latents, packed as the model's tokens. */
import type { Answer, Answered } from '../policy.js';
import type { Gaussian } from './steps.js';

/** What the model sees besides the noisy latents. */
export interface FlowCondition {
  /** Height and width of the latents in tokens; tokens are stored row by row. */
  readonly rows: number;
  readonly columns: number;
  /** [T, width of the text encoder] */
  readonly text: Float32Array;
  /** How many of the T tokens are text; what follows is padding, which the model does not see. Absent: all. */
  readonly textTokens?: number;
  /** What guidance is measured from, in the place of the text: as many tokens as it has and their padding. Absent: a text of zeros. */
  readonly without?: { readonly text: Float32Array; readonly textTokens: number };
  /** [width of the pooled text], for a model that takes it. */
  readonly pooled: Float32Array | null;
  /** [width of the image encoder], of the style image; for a model with an IP-Adapter. */
  readonly imageFeatures: Float32Array | null;
  /** [rows * columns, C'] that stands behind the channels of every latent token: an inpainting context. C' may be 0. */
  readonly context: Float32Array;
  /** For a model that is shown what stays as further tokens; absent for any other. */
  readonly kept?: KeptPicture;
}

/**
 * What stays of a picture that is painted into. After each step of the solver it is put back, at that step's noise, so that what the model
 * decides are the painted elements alone: only these enter log-probabilities, divergences and losses.
 */
export interface KeptPicture {
  /** [N, C] latents of the picture with what is to be painted left out. */
  readonly shown: Float32Array;
  /** [N, C]: 1 where it is painted, else 0; 1 somewhere. */
  readonly painted: Float32Array;
}

/** A prompt that a flow policy can answer. */
export interface FlowAsked {
  readonly flow: FlowCondition;
}

/** One drawn array: a noisy step of the solver, or the velocity of a labelled picture. */
export interface FlowAction {
  /** The noise level at which the model is asked. */
  readonly sigma: number;
  /** [N, C] what it is shown; empty where the answer has another home. */
  readonly x: Float32Array;
  /** [N, C] what was drawn; empty where the answer has another home. */
  readonly drawn: Float32Array;
  readonly gaussian: Gaussian;
}

export interface FlowAnswer extends Answer {
  readonly actions: readonly FlowAction[];
  /** [N, C] the final latents; empty where the answer has another home. */
  readonly latents: Float32Array;
  /** The one rank that holds its pictures; absent: every rank does. */
  readonly home?: number;
}

export type FlowGroup = Answered<FlowAsked, FlowAnswer>;
