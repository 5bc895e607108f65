/** What draws the pictures that responses lead to: a model of this process, or a server. */
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import type { RandomStream } from '../../core/random.js';
import { resizeCubic } from '../../core/resize.js';
import type { MadePicture } from '../../environments/image_model.js';
import { smartSize } from '../../models/pictures/processor.js';
import type { WeightsOf } from '../../policies/policy.js';
import type { TokenAnswer } from '../../policies/tokens/batch.js';
import type { HiddenStates, ToRead } from '../../policies/tokens/hidden_states.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { EditorSettings } from '../../schema/editor.js';

/** What a policy answers here; one from a record comes with what its picture is found by. */
export interface ResponseAnswer extends TokenAnswer, Remembered {}

/** What of a recorded answer its picture is found by, without the policy. */
export interface Remembered {
  /** Those of the picture itself. */
  readonly latents?: Float32Array;
  /** SHA-256 of the hidden states that a server was sent. */
  readonly statesDigest?: string;
}

/** An edit that is wanted. */
export interface WantedEdit {
  /** The episode's name. */
  readonly key: string;
  /** The picture before it, as `Drawing.fitted` gave it: the same object for all edits of a prompt. */
  readonly source: RgbImage;
  /** What the model is told, in words. */
  readonly words: string;
  /** What it is told, as what the policy reads. */
  readonly read: ToRead;
  /** Of the noise that it begins with. */
  readonly random: RandomStream;
  readonly answer: ResponseAnswer;
}

export interface DrawnEdit {
  readonly picture: MadePicture;
  /** What the episode's record holds of it. */
  readonly record: Readonly<Record<string, unknown>>;
}

export interface Drawing {
  /** A picture as it is edited and judged. Raises DataError, naming `path` and `where`, for one of a size that cannot be edited. */
  fitted(image: RgbImage, path: string, where: string): RgbImage;
  /** A picture for each edit, in their order; raises as `ImageModel.generate`. */
  draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]>;
  /** What a record holds that pictures are found by. Raises RunError for a record without it. */
  remembered(episode: RecordedEpisode): Remembered;
  /** As `ImageModel.keep`. */
  keep?(): Promise<void>;
  dispose(): Promise<void>;
}

/** Reads what weights that answered have written; null where there are none any more, and pictures come from records. */
export type ReadStates = (items: readonly ToRead[], of: Exclude<WeightsOf, 'reference'>) => Promise<HiddenStates[]>;

/** Whether what draws is told the states of the weights that training started from. */
export function isReadByStart(environment: EditorSettings): boolean {
  return 'read_by' in environment && environment.read_by === 'start';
}

/** By the settings, those of the policy as it answered or those of its start. */
export function readStates(
  environment: EditorSettings,
  policy: {
    read(items: readonly ToRead[], of: WeightsOf): Promise<HiddenStates[]>;
  },
): ReadStates {
  const isByStart = isReadByStart(environment);
  return (items, of) => policy.read(items, isByStart ? 'reference' : of);
}

/** A picture whose sides are multiples of `side`, and whose pixels at most so many, made so where `most` is no null; else raises DataError. */
export function fittedTo(
  image: RgbImage,
  { side, most }: { readonly side: number; readonly most: number | null },
  path: string,
  where: string,
): RgbImage {
  const { width, height } = image;
  const fits = width % side === 0 && height % side === 0;
  if (fits && (most === null || width * height <= most)) return image;
  if (most === null) {
    throw new DataError(`${path}: found ${width}x${height} pixels; allowed: multiples of ${side}`, {
      where,
      next: 'Resize the picture, or set environment.max_pixels, with which pictures are fitted.',
    });
  }
  const size = smartSize(height, width, side, { min_pixels: 1, max_pixels: most });
  return resizeCubic(image, Math.max(side, size.width), Math.max(side, size.height));
}
