/** Draws the pictures that responses describe: a model of this process, or a server. */
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
import type { HiddenStates, StatesRequest } from '../../policies/tokens/hidden_states.js';
import type { RecordedEpisode } from '../../run/episodes.js';
import type { EditorSettings } from '../../schema/editor.js';
import type { OnePicture } from '../open_pictured.js';

/** A policy's answer here; one from a record includes what identifies its picture. */
export interface ResponseAnswer extends TokenAnswer, RecordedDrawing {}

/** The part of a recorded answer that identifies its picture without the policy. */
export interface RecordedDrawing {
  /** Latents of the picture itself. */
  readonly latents?: Float32Array;
  /** SHA-256 of the hidden states sent to a server. */
  readonly statesDigest?: string;
  /** SHA-256 of the hidden states of a blank instruction, if these were sent too. */
  readonly blankDigest?: string;
}

/** A requested edit. */
export interface WantedEdit {
  /** The episode's name. */
  readonly key: string;
  /** The picture to edit, as `Drawing.fitted` returned it: the same object for all edits of a prompt. */
  readonly source: RgbImage;
  /** Further pictures that the model is shown, in their order, likewise fitted; empty if `Drawing.onlyOne` is not null. */
  readonly further: readonly RgbImage[];
  /** The instruction to the model, in words. */
  readonly words: string;
  /** The instruction to the model, as tokens for the policy to read. */
  readonly read: StatesRequest;
  /** A blank instruction with the same picture, if `Drawing.asksBlank`, else null. */
  readonly blank: BlankEdit | null;
  /** Source of the initial noise. */
  readonly random: RandomStream;
  readonly answer: ResponseAnswer;
}

export interface BlankEdit {
  /** Names the files of its pictures, which determine everything that is read of them. */
  readonly picture: string;
  readonly read: StatesRequest;
}

export interface DrawnEdit {
  readonly picture: MadePicture;
  /** Fields for the episode's record. */
  readonly record: Readonly<Record<string, unknown>>;
}

export interface Drawing {
  /** Whether edits need a blank instruction. */
  readonly asksBlank: boolean;
  /** Why an edit begins from one picture; null: it may begin from several. */
  readonly onlyOne: OnePicture | null;
  /** A picture in the size in which it is edited and judged. Raises DataError, naming `path` and `where`, for a size that cannot be edited. */
  fitted(image: RgbImage, path: string, where: string): RgbImage;
  /** A picture for each edit, in their order; raises as `ImageModel.generate` does. */
  draw(edits: readonly WantedEdit[], weights: Exclude<WeightsOf, 'reference'>): Promise<DrawnEdit[]>;
  /** The fields of a record that identify pictures. Raises RunError for a record without them. */
  remembered(episode: RecordedEpisode): RecordedDrawing;
  /** See `ImageModel.keep`. */
  keep?(): Promise<void>;
  dispose(): Promise<void>;
}

/** Gives the hidden states of a policy's reading. */
interface ReadingPolicy {
  read(items: readonly StatesRequest[], of: WeightsOf): Promise<HiddenStates[]>;
}

/** Whether the model that draws gets the states of the weights that training started from. */
export function isReadByStart(environment: EditorSettings): boolean {
  return 'read_by' in environment && environment.read_by === 'start';
}

/** Whether a run reads with the weights that training started from, even if only a blank instruction. */
export function keepsStart(environment: EditorSettings): boolean {
  return isReadByStart(environment) || ('read_by' in environment && environment.guidance_scale !== null);
}

/** The states for an edit, and those of its blank instruction if it has one. */
export interface EditStates {
  readonly states: HiddenStates;
  readonly blank: HiddenStates | null;
}

/** Reads edits with a policy's weights. */
export class StatesReader {
  /** States of blank instructions by picture: the weights that training started from never change. */
  readonly #blanks = new LRUCache<string, HiddenStates>({
    maxSize: KEPT_BYTES,
    sizeCalculation: ({ states }) => states.byteLength,
  });

  constructor(
    private readonly environment: EditorSettings,
    private readonly policy: ReadingPolicy,
  ) {}

  /** The states of the edits, in order, under the weights that answered or, depending on the settings, those that training started from. */
  async read(
    edits: readonly Pick<WantedEdit, 'read' | 'blank'>[],
    weights: Exclude<WeightsOf, 'reference'>,
  ): Promise<EditStates[]> {
    const states = await this.policy.read(
      edits.map(({ read }) => read),
      isReadByStart(this.environment) ? 'reference' : weights,
    );
    const told: EditStates[] = [];
    for (const [i, { blank }] of edits.entries()) {
      told.push({ states: states[i], blank: blank === null ? null : await this.#blank(blank) });
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

/** A picture whose sides are multiples of `side`, with at most `most` pixels. Scales it if `most` is not null; else raises DataError. */
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
