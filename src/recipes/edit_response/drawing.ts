/** What draws the pictures that responses lead to: a model of this process, or a server. */
import { LRUCache } from 'lru-cache';
import { DataError } from '../../core/errors.js';
import type { RgbImage } from '../../core/image.js';
import type { RandomStream } from '../../core/random.js';
import { resizeCubic } from '../../core/resize.js';
import type { MadePicture } from '../../environments/image_model.js';
import { KEPT_BYTES } from '../../models/pictures/picture.js';
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
  /** Of those of a blank instruction, where it was sent these, too. */
  readonly blankDigest?: string;
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
  /** A blank instruction with the same picture, where `Drawing.asksBlank` says that guidance is measured from it, else null. */
  readonly blank: BlankEdit | null;
  /** Of the noise that it begins with. */
  readonly random: RandomStream;
  readonly answer: ResponseAnswer;
}

export interface BlankEdit {
  /** The file of its picture, which all that is read of it follows from. */
  readonly picture: string;
  readonly read: ToRead;
}

export interface DrawnEdit {
  readonly picture: MadePicture;
  /** What the episode's record holds of it. */
  readonly record: Readonly<Record<string, unknown>>;
}

export interface Drawing {
  /** Whether edits are to come with a blank instruction. */
  readonly asksBlank: boolean;
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

/** What a policy's reading is asked by. */
interface ReadingPolicy {
  read(items: readonly ToRead[], of: WeightsOf): Promise<HiddenStates[]>;
}

/** Whether what draws is told the states of the weights that training started from. */
export function isReadByStart(environment: EditorSettings): boolean {
  return 'read_by' in environment && environment.read_by === 'start';
}

/** Whether a run reads with the weights that training started from, be it a blank instruction alone. */
export function keepsStart(environment: EditorSettings): boolean {
  return isReadByStart(environment) || ('read_by' in environment && environment.guidance_scale !== null);
}

/** The states that an edit is told, and those of its blank instruction where it comes with one. */
export interface Told {
  readonly told: HiddenStates;
  readonly blank: HiddenStates | null;
}

/** What a policy makes of edits. */
export class StatesReader {
  /** States of blank instructions by their pictures: the weights that training started from never change. */
  readonly #blanks = new LRUCache<string, HiddenStates>({
    maxSize: KEPT_BYTES,
    sizeCalculation: ({ states }) => states.byteLength,
  });

  constructor(
    private readonly environment: EditorSettings,
    private readonly policy: ReadingPolicy,
  ) {}

  /** Of the edits, in their order: what the weights that answered make of them, or by the settings those that training started from. */
  async told(
    edits: readonly Pick<WantedEdit, 'read' | 'blank'>[],
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<Told[]> {
    const states = await this.policy.read(
      edits.map(({ read }) => read),
      isReadByStart(this.environment) ? 'reference' : weights,
    );
    const told: Told[] = [];
    for (const [i, { blank }] of edits.entries()) {
      told.push({ told: states[i], blank: blank === null ? null : await this.#blank(blank) });
    }
    return told;
  }

  async #blank({ picture, read }: BlankEdit): Promise<HiddenStates> {
    const known = this.#blanks.get(picture);
    if (known !== undefined) return known;
    const [states] = await this.policy.read([read], 'reference');
    this.#blanks.set(picture, states);
    return states;
  }
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
