/**
 * Uploads images and clips of a prompt to vLLM at the policy's size, so that vLLM's processor does not resize them.
 * vLLM computes its own number of tokens for each, which is compared with ours.
 */
import { DataError, EndpointError, must } from '../../../core/errors.js';
import { encodePng } from '../../../core/images/image.js';
import type { ContentPart } from './client.js';
import { tokensOf, type VisionInput } from '../../../models/images/vision_input.js';
import type { VisionConfig } from '../../../compute/nets/vision/config.js';
import { ImageDigests } from '../tokens/batch.js';
import type { TokenPrompt } from '../../../models/tokenizer/format.js';

/** Sizes of a model that uploads depend on. */
export type VisionSizes = Pick<
  VisionConfig,
  | 'image_token_id'
  | 'video_token_id'
  | 'patch_size'
  | 'temporal_patch_size'
  | 'spatial_merge_size'
  | 'tokens_per_second'
>;

/** A prompt in the form of a request. */
export interface SentPrompt {
  /** Contains one token for each image. */
  readonly ids: readonly number[];
  readonly parts: readonly ContentPart[];
}

/** The flag that makes vLLM read every frame of a clip instead of two per second. */
export const EVERY_FRAME = '{"video": {"fps": 30}}';
const MAX_FRAMES_PER_SECOND = 30;

export class ImageUploads {
  readonly #parts = new WeakMap<VisionInput, Promise<ContentPart>>();
  readonly #digests = new ImageDigests();

  constructor(private readonly sizes: VisionSizes) {}

  /** Raises DataError for a clip whose tokens would get other times in vLLM than in the trainer. */
  async sent({ ids, images = [] }: TokenPrompt): Promise<SentPrompt> {
    const parts: ContentPart[] = [];
    for (const image of images) {
      this.#requireTimes(image);
      const known = this.#parts.get(image) ?? partOf(image, this.sizes);
      this.#parts.set(image, known);
      parts.push(await known);
    }
    return { ids: this.#collapsed(ids, images), parts };
  }

  /** SHA-256 of everything that the policy sees of the images. Null without images. */
  digestOf(prompt: TokenPrompt): string | null {
    return this.#digests.of(prompt);
  }

  /** Raises EndpointError, with the image, if the server read another prompt than the trainer. */
  requireSame({ ids, images = [] }: TokenPrompt, found: readonly number[], url: string): void {
    if (found.length === ids.length && found.every((id, i) => id === ids[i])) return;
    const [ours, theirs] = [this.#runs(ids), this.#runs(found)];
    const at = images.findIndex((_, i) => ours[i] !== theirs[i]);
    const what =
      at < 0
        ? `vLLM read a prompt of ${found.length} tokens which is not the one of ${ids.length} that it was sent`
        : `vLLM makes ${theirs[at] ?? 0} tokens of image ${at + 1} of ${images.length}, ${describe(images[at])}, and the policy has ${ours[at]}`;
    throw new EndpointError(what, {
      where: url,
      next: `Start vLLM with the model of policy.model and --mm-processor-kwargs '{"size": {"shortest_edge": LEAST, "longest_edge": MOST}}' of policy.pixels (min_pixels and max_pixels)${images.some(({ kind }) => kind === 'video') ? ` and --media-io-kwargs '${EVERY_FRAME}'` : ''}.`,
    });
  }

  /** Lengths of runs of image tokens that other tokens separate. */
  #runs(ids: readonly number[]): number[] {
    const runs: number[] = [];
    ids.forEach((id, i) => {
      if (!this.#stands(id)) return;
      if (i > 0 && ids[i - 1] === id) runs[runs.length - 1] += 1;
      else runs.push(1);
    });
    return runs;
  }

  #stands(id: number): boolean {
    return id === this.sizes.image_token_id || id === this.sizes.video_token_id;
  }

  #collapsed(ids: readonly number[], images: readonly VisionInput[]): number[] {
    const out: number[] = [];
    let next = 0;
    for (let i = 0; i < ids.length; i++) {
      out.push(ids[i]);
      if (this.#stands(ids[i])) i += tokensOf(must(images[next++], 'an image').grid, this.sizes) - 1;
    }
    return out;
  }

  /**
   * Raises DataError if text after a clip would get other positions.
   * vLLM continues after the clip's last moment, the trainer after the longer side of a frame. These agree unless the
   * clip is long. vLLM also rounds times at another point.
   */
  #requireTimes(image: VisionInput): void {
    const { kind, grid, secondsPerStep } = image;
    if (kind === 'image') return;
    const { tokens_per_second: perSecond, temporal_patch_size, spatial_merge_size: merge } = this.sizes;
    const ours = (step: number): number =>
      perSecond === null ? step : Math.trunc(Math.fround(step * Math.fround(perSecond * secondsPerStep)));
    const theirs = (step: number): number =>
      perSecond === null ? step : Math.trunc(step * (Math.fround(secondsPerStep) * perSecond));
    const side = Math.max(grid.rows, grid.columns) / merge;
    const steps = Array.from({ length: grid.steps }, (_, step) => step);
    const last = theirs(grid.steps - 1);
    const next = 'Set policy.pixels.video larger or show fewer frames, or set rollout.engine to null.';
    if (last >= side) {
      throw new DataError(
        `vLLM cannot sample ${describe(image)}: the words after it start at position ${side} in the policy and ${last + 1} in vLLM`,
        { next },
      );
    }
    const odd = steps.find((step) => ours(step) !== theirs(step));
    if (odd !== undefined) {
      throw new DataError(
        `vLLM cannot sample ${describe(image)}: its position of step ${odd} is ${theirs(odd)}, and the policy's ${ours(odd)}`,
        { next },
      );
    }
    if (secondsPerStep > 0 && temporal_patch_size / secondsPerStep > MAX_FRAMES_PER_SECOND) {
      throw new DataError(
        `vLLM cannot sample ${describe(image)}: it takes at most ${MAX_FRAMES_PER_SECOND} frames a second`,
        { next: 'Show fewer frames a second, or set rollout.engine to null.' },
      );
    }
  }
}

function describe({ kind, frames, grid, secondsPerStep }: VisionInput): string {
  const size = `${frames[0].width}x${frames[0].height} pixels`;
  return kind === 'image' ? `an image of ${size}` : `a clip of ${grid.steps} steps of ${secondsPerStep} s, ${size}`;
}

async function partOf(
  { kind, frames, grid, secondsPerStep }: VisionInput,
  { temporal_patch_size: depth }: VisionSizes,
): Promise<ContentPart> {
  const files: Uint8Array[] = [];
  for (const frame of frames.slice(0, kind === 'image' ? 1 : grid.steps * depth)) files.push(await encodePng(frame));
  const url = (type: string, bytes: Uint8Array): string =>
    `data:${type};base64,${Buffer.from(bytes).toString('base64')}`;
  if (kind === 'image') return { type: 'image_url', url: url('image/png', files[0]) };
  // A clip without a duration is one whose times do not count.
  const file = aviOf(files, frames[0], secondsPerStep > 0 ? secondsPerStep / depth : 1);
  return { type: 'video_url', url: url('video/avi', file) };
}

/** Largest numerator and denominator in the header. */
const MAX_INT = 2 ** 31 - 1;

/**
 * Combines PNG frames of equal size, `secondsPerFrame` apart, into an AVI file. The time is stored as the nearest
 * fraction of integers below 2^31.
 */
export function aviOf(
  frames: readonly Uint8Array[],
  { width, height }: { readonly width: number; readonly height: number },
  secondsPerFrame: number,
): Buffer {
  const [scale, rate] = fractionOf(secondsPerFrame);
  const largest = Math.max(...frames.map(({ length }) => length));
  const format = fourcc('MPNG');
  const main = numbers(
    ...[Math.min(MAX_INT, Math.round(1e6 * secondsPerFrame)), 0, 0, HAS_INDEX, frames.length, 0, 1, largest],
    ...[width, height, 0, 0, 0, 0],
  );
  const stream = Buffer.concat([
    ...[fourcc('vids'), format],
    numbers(0, 0, 0, scale, rate, 0, frames.length, largest, 0xffffffff, 0),
    ...[shorts(0, 0, width, height)],
  ]);
  const image = Buffer.concat([
    numbers(40, width, height),
    shorts(1, 24),
    format,
    numbers(width * height * 3, 0, 0, 0, 0),
  ]);
  const headers = list('hdrl', [chunk('avih', main), list('strl', [chunk('strh', stream), chunk('strf', image)])]);
  const chunks = frames.map((frame) => chunk(FRAME, frame));
  let offset = 4;
  const index = chunks.map((made, i) => {
    const entry = Buffer.concat([fourcc(FRAME), numbers(KEY_FRAME, offset, frames[i].length)]);
    offset += made.length;
    return entry;
  });
  const body = [fourcc('AVI '), headers, list('movi', chunks), chunk('idx1', Buffer.concat(index))];
  return chunk('RIFF', Buffer.concat(body));
}

const HAS_INDEX = 0x10;
const KEY_FRAME = 0x10;
/** The chunk id of a compressed frame of the first stream. */
const FRAME = '00dc';

function fourcc(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}

function numbers(...values: readonly number[]): Buffer {
  const out = Buffer.alloc(4 * values.length);
  values.forEach((value, i) => out.writeUInt32LE(value, 4 * i));
  return out;
}

function shorts(...values: readonly number[]): Buffer {
  const out = Buffer.alloc(2 * values.length);
  values.forEach((value, i) => out.writeUInt16LE(value, 2 * i));
  return out;
}

/** A chunk, padded to an even length. */
function chunk(name: string, content: Uint8Array): Buffer {
  return Buffer.concat([fourcc(name), numbers(content.length), content, Buffer.alloc(content.length % 2)]);
}

function list(kind: string, chunks: readonly Buffer[]): Buffer {
  return chunk('LIST', Buffer.concat([fourcc(kind), ...chunks]));
}

/** The last continued fraction of a positive number with small enough numerator and denominator. */
export function fractionOf(value: number): [numerator: number, denominator: number] {
  let [before, now] = [
    [0, 1],
    [1, 0],
  ];
  for (let rest = value; ;) {
    const whole = Math.floor(rest);
    const next = [whole * now[0] + before[0], whole * now[1] + before[1]];
    if (next[0] > MAX_INT || next[1] > MAX_INT) break;
    [before, now] = [now, next];
    // A double has about 15 significant digits. The rest is rounding error.
    if (Math.abs(now[0] / now[1] - value) <= 1e-15 * value) break;
    rest = 1 / (rest - whole);
  }
  return [now[0], now[1]];
}
