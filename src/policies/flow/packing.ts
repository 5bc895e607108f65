/** Latents as the tokens of a flow model, and masks beside them. Pure functions. */
import { InternalError } from '../../core/errors.js';
import type { Planes } from '../../core/planes.js';
import { velocityWidth, type FlowTransformerConfig } from '../../nets/flow/config.js';

/**
 * Side of the square of latents with this many channels that one of the model's tokens represents; not a whole number if the model was made for other
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
