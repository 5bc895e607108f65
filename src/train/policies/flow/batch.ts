/** A flow policy's prompts and answers. Images are rows of numbers here: latents, packed into the model's tokens. */
import type { Answer, Group } from '../policy.js';
import type { Gaussian } from './steps.js';
import { InternalError } from '../../../core/errors.js';
import type { Planes } from '../../../core/images/planes.js';
import { velocityWidth, type FlowTransformerConfig } from '../../../compute/nets/flow/config.js';

/** The model's inputs in addition to the noisy latents. */
export interface FlowCondition {
  /** Height and width of the latents in tokens. Tokens are stored row by row. */
  readonly rows: number;
  readonly columns: number;
  /** [T, width of the text encoder] */
  readonly text: Float32Array;
  /** Number of the T tokens that are text. The rest is padding, which the model does not see. Default: all. */
  readonly textTokens?: number;
  /** The text and the summary from which guidance is measured, with their own number of tokens before padding. Default: zeros. */
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
  /** The part of the image outside the mask as further tokens, for models that read it this way. Absent for others. */
  readonly kept?: KeptImage;
  /** Reference images after `kept`, in order. Absent: none. */
  readonly further?: readonly FurtherImage[];
}

/** A reference image with its own size. */
export interface FurtherImage {
  /** Height and width in tokens. */
  readonly rows: number;
  readonly columns: number;
  /** [rows * columns, C] latents. */
  readonly shown: Float32Array;
}

/**
 * The part of an image that stays while the rest is painted. After each step of the solver it is restored, at that step's noise level, so that the
 * model decides only the painted elements: only these enter log-probabilities, divergences and losses.
 */
export interface KeptImage {
  /** [N, C] latents of the image without the part to be painted. */
  readonly shown: Float32Array;
  /** [N, C]: 1 where it is painted, else 0. At least one element is 1. */
  readonly painted: Float32Array;
}

/** A prompt that a flow policy can answer. */
export interface FlowRequest {
  readonly flow: FlowCondition;
}

/** One drawn array: a noisy step of the solver, or the velocity of a labeled image. */
export interface FlowAction {
  /** The noise level at which the model is evaluated. */
  readonly sigma: number;
  /** [N, C] the model's input. Empty on ranks without the answer. */
  readonly x: Float32Array;
  /** [N, C] the drawn values. Empty on ranks without the answer. */
  readonly drawn: Float32Array;
  readonly gaussian: Gaussian;
}

export interface FlowAnswer extends Answer {
  readonly actions: readonly FlowAction[];
  /** [N, C] the final latents. Empty on ranks without the answer. */
  readonly latents: Float32Array;
  /** The only rank that has its images. Absent: every rank has them. */
  readonly home?: number;
}

export type FlowGroup = Group<FlowRequest, FlowAnswer>;

/**
 * Side of the square of latents with this many channels that one of the model's tokens represents. It is not an integer if the model was made for other
 * latents.
 */
export function patchOf(config: FlowTransformerConfig, { channels }: Pick<Planes, 'channels'>): number {
  return Math.sqrt(velocityWidth(config) / channels);
}

/** Squares of side `patch`, row by row, as tokens [(height / patch) (width / patch), channels patch^2] with features in the order (c, dy, dx). */
export function pack({ channels, height, width, data }: Planes, patch: number): Float32Array {
  requirePatches(height, width, patch);
  const out = new Float32Array(data.length);
  forEachPlace(channels, height, width, patch, (token, plane) => (out[token] = data[plane]));
  return out;
}

/** Inverse of `pack`. */
export function unpack(tokens: Float32Array, shape: Omit<Planes, 'data'>, patch: number): Planes {
  const { channels, height, width } = shape;
  requirePatches(height, width, patch);
  const data = new Float32Array(channels * height * width);
  forEachPlace(channels, height, width, patch, (token, plane) => (data[plane] = tokens[token]));
  return { ...shape, data };
}

/** [1, h, w] as [factor^2, h / factor, w / factor]: a plane for each position in a square, for the pixels that one latent represents. */
export function unshuffle({ channels, height, width, data }: Planes, factor: number): Planes {
  if (channels !== 1) throw new InternalError(`${channels} channels to unshuffle`);
  const tokens = pack({ channels, height, width, data }, factor);
  const [high, wide] = [height / factor, width / factor];
  const planes = new Float32Array(data.length);
  for (let at = 0; at < high * wide; at++) {
    for (let f = 0; f < factor ** 2; f++) planes[f * high * wide + at] = tokens[at * factor ** 2 + f];
  }
  return { channels: factor ** 2, height: high, width: wide, data: planes };
}

/** Tokens [N, a] and [N, b] as [N, a + b]. */
export function concatChannels(tokens: number, ...parts: readonly Float32Array[]): Float32Array {
  const widths = parts.map(({ length }) => length / tokens);
  const width = widths.reduce((sum, one) => sum + one, 0);
  const out = new Float32Array(tokens * width);
  for (let n = 0; n < tokens; n++) {
    let at = n * width;
    parts.forEach((part, i) => {
      out.set(part.subarray(n * widths[i], (n + 1) * widths[i]), at);
      at += widths[i];
    });
  }
  return out;
}

function requirePatches(height: number, width: number, patch: number): void {
  if (height % patch === 0 && width % patch === 0) return;
  throw new InternalError(`${height} x ${width} latents are no whole patches of ${patch}`);
}

function forEachPlace(
  channels: number,
  height: number,
  width: number,
  patch: number,
  visit: (token: number, plane: number) => void,
): void {
  let token = 0;
  for (let top = 0; top < height; top += patch) {
    for (let left = 0; left < width; left += patch) {
      for (let c = 0; c < channels; c++) {
        for (let dy = 0; dy < patch; dy++) {
          for (let dx = 0; dx < patch; dx++) visit(token++, (c * height + top + dy) * width + left + dx);
        }
      }
    }
  }
}
