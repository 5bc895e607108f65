/** The eyes of Qwen2.5-VL in plain loops over float64, for patches that all see each other; written from the formulae, shares nothing with src/compute/nets. */
import type { FloatTensor } from '../../../src/core/safetensors.js';

type Row = number[];

/** `vision_config` of a config.json, with the ids of its pictures. */
export interface ReferenceVision {
  readonly depth: number;
  readonly hidden_size: number;
  readonly num_heads: number;
  readonly patch_size: number;
  readonly temporal_patch_size: number;
  readonly spatial_merge_size: number;
  readonly tokens_per_second: number;
  readonly fullatt_block_indexes: readonly number[];
  readonly image_mean: readonly number[];
  readonly image_std: readonly number[];
}

/** Frames of bytes, RGB, all of one size. */
export interface ReferencePicture {
  readonly width: number;
  readonly height: number;
  readonly frames: readonly Uint8Array[];
  /** Null for an image. */
  readonly framesPerSecond: number | null;
}

const EPS = 1e-6;
const THETA = 10_000;

/** A row for each token, step after step, row after row. Throws for blocks of windows, which are not written here. */
export function referenceTokens(
  vision: ReferenceVision,
  weights: ReadonlyMap<string, FloatTensor>,
  picture: ReferencePicture,
): Row[] {
  const { depth: blocks, hidden_size: width, num_heads: heads, spatial_merge_size: merge, patch_size: side } = vision;
  const get = (name: string): Float32Array | Float64Array | ArrayLike<number> => {
    const tensor = weights.get(name);
    if (tensor === undefined) throw new Error(name);
    return tensor.data;
  };
  const linear = (x: Row, name: string): Row => {
    const [matrix, bias] = [get(`${name}.weight`), get(`${name}.bias`)];
    return Array.from({ length: bias.length }, (_, o) => {
      let sum = bias[o];
      for (let i = 0; i < x.length; i++) sum += x[i] * matrix[o * x.length + i];
      return sum;
    });
  };
  const norm = (x: Row, name: string): Row => {
    const scale = 1 / Math.sqrt(x.reduce((sum, value) => sum + value * value, 0) / x.length + EPS);
    const weight = get(`${name}.weight`);
    return x.map((value, i) => value * scale * weight[i]);
  };
  const [columns, rows] = [picture.width / side, picture.height / side];
  const headDepth = width / heads;
  /** The first half of the angles is of the row, the second of the column. */
  const rotate = (x: Row, { row, column }: { readonly row: number; readonly column: number }): Row => {
    const half = headDepth / 2;
    const axis = half / 2;
    return x.map((value, i) => {
      const j = i % headDepth;
      const frequency = j % half;
      const place = frequency < axis ? row : column;
      const angle = place * THETA ** (-(2 * (frequency % axis)) / half);
      const other = j < half ? -x[i + half] : x[i - half];
      return value * Math.cos(angle) + other * Math.sin(angle);
    });
  };
  const kernels = get('visual.patch_embed.proj.weight');
  const patchAt = (step: number, row: number, column: number): Row => {
    const values: number[] = [];
    for (let channel = 0; channel < 3; channel++) {
      for (let t = 0; t < vision.temporal_patch_size; t++) {
        // An image stands still.
        const frame = picture.frames[Math.min(picture.frames.length - 1, step * vision.temporal_patch_size + t)];
        for (let y = 0; y < side; y++) {
          for (let x = 0; x < side; x++) {
            const byte = frame[((row * side + y) * picture.width + column * side + x) * 3 + channel];
            values.push((byte / 255 - vision.image_mean[channel]) / vision.image_std[channel]);
          }
        }
      }
    }
    return Array.from({ length: width }, (_, o) =>
      values.reduce((sum, value, i) => sum + value * kernels[o * values.length + i], 0),
    );
  };
  const block = (x: readonly Row[], places: readonly { row: number; column: number }[], name: string): Row[] => {
    const all = x.map((row) => linear(norm(row, `${name}.norm1`), `${name}.attn.qkv`));
    const q = all.map((row, t) => rotate(row.slice(0, width), places[t]));
    const k = all.map((row, t) => rotate(row.slice(width, 2 * width), places[t]));
    const v = all.map((row) => row.slice(2 * width));
    return x.map((row, t) => {
      const mixed: Row = [];
      for (let head = 0; head < heads; head++) {
        const from = head * headDepth;
        const scores = k.map((key) => {
          let sum = 0;
          for (let d = from; d < from + headDepth; d++) sum += q[t][d] * key[d];
          return Math.exp(sum / Math.sqrt(headDepth));
        });
        const total = scores.reduce((sum, score) => sum + score, 0);
        for (let d = from; d < from + headDepth; d++) {
          mixed.push(scores.reduce((sum, score, s) => sum + (score / total) * v[s][d], 0));
        }
      }
      const attended = linear(mixed, `${name}.attn.proj`).map((value, i) => value + row[i]);
      const inner = norm(attended, `${name}.norm2`);
      const [gate, up] = ['gate_proj', 'up_proj'].map((layer) => linear(inner, `${name}.mlp.${layer}`));
      const hidden = gate.map((value, i) => (value / (1 + Math.exp(-value))) * up[i]);
      return linear(hidden, `${name}.mlp.down_proj`).map((value, i) => value + attended[i]);
    });
  };
  const tokens: Row[] = [];
  for (let step = 0; step < Math.ceil(picture.frames.length / vision.temporal_patch_size); step++) {
    const places = Array.from({ length: rows * columns }, (_, i) => ({
      row: Math.floor(i / columns),
      column: i % columns,
    }));
    let patches = places.map(({ row, column }) => patchAt(step, row, column));
    for (let i = 0; i < blocks; i++) {
      if (!vision.fullatt_block_indexes.includes(i)) throw new Error(`block ${i} has windows`);
      patches = block(patches, places, `visual.blocks.${i}`);
    }
    const normalised = patches.map((row) => norm(row, 'visual.merger.ln_q'));
    for (let top = 0; top < rows; top += merge) {
      for (let left = 0; left < columns; left += merge) {
        const square: Row = [];
        for (let y = 0; y < merge; y++) {
          for (let x = 0; x < merge; x++) square.push(...normalised[(top + y) * columns + left + x]);
        }
        tokens.push(linear(linear(square, 'visual.merger.mlp.0').map(gelu), 'visual.merger.mlp.2'));
      }
    }
  }
  return tokens;
}

/** Half of x times 1 + erf(x / sqrt 2), by the series of erf, beyond which it is 1 but for 1e-8. */
function gelu(x: number): number {
  const z = x / Math.SQRT2;
  if (Math.abs(z) > 4) return z > 0 ? x : 0;
  let [term, sum] = [z, z];
  for (let n = 1; n < 80; n++) {
    term *= -(z * z) / n;
    sum += term / (2 * n + 1);
  }
  return (x / 2) * (1 + (2 / Math.sqrt(Math.PI)) * sum);
}

/**
 * Positions on three axes (time, row, column) as vLLM counts them: a clip's steps by the time that they come at, and words behind a picture from its
 * last position on any axis.
 */
export function referencePositions(
  vision: ReferenceVision,
  ids: readonly number[],
  isPicture: (id: number) => boolean,
  pictures: readonly ReferencePicture[],
): [number, number, number][] {
  const out: [number, number, number][] = [];
  const left = [...pictures];
  const side = vision.patch_size * vision.spatial_merge_size;
  let next = 0;
  for (let at = 0; at < ids.length;) {
    if (!isPicture(ids[at])) {
      out.push([next, next, next]);
      next += 1;
      at += 1;
      continue;
    }
    const picture = left.shift();
    if (picture === undefined) throw new Error('more placeholders than pictures');
    const { width, height, frames, framesPerSecond } = picture;
    const perStep = framesPerSecond === null ? 1 : vision.temporal_patch_size / framesPerSecond;
    const first = next;
    for (let step = 0; step < Math.ceil(frames.length / vision.temporal_patch_size); step++) {
      const time = Math.trunc(step * perStep * vision.tokens_per_second);
      for (let row = 0; row < height / side; row++) {
        for (let column = 0; column < width / side; column++, at++) {
          out.push([first + time, first + row, first + column]);
          next = Math.max(next, first + Math.max(time, row, column) + 1);
        }
      }
    }
  }
  return out;
}
