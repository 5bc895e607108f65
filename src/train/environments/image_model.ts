/** Generates images of the policy's prompts, with a frozen model in this process or a remote server. */
import type { RgbImage } from '../../core/images/image.js';
import type { JudgeItem, UnscoredReason } from '../../rewards/score/types.js';

/** Upper bound of noise seeds. */
export const SEEDS = 2 ** 31;

/** A request for one image. */
export interface ImageRequest {
  /** The episode's key, unique within a run. Remote images are stored under it and reused by a resumed run. */
  readonly key: string;
  /** The prompt that the policy wrote, which may be empty. */
  readonly prompt: string;
  /** Seed of the initial noise, from 0 to 2^31 - 1. Equal prompts and seeds give equal images. */
  readonly seed: number;
}

/**
 * The result of a request.
 * `unavailable` covers every failure of the image model or server, such as a refusal or a reply without an image. The
 * episode is then unscored with this reason, because an image is never invented.
 */
export type MadeImage =
  | {
      readonly kind: 'made';
      readonly image: RgbImage;
      /**
       * Number of tokens at the prompt's end beyond the model's limit, which it did not read. Absent if there are none
       * or if unknown.
       */
      readonly unread?: number;
    }
  | { readonly kind: 'unavailable'; readonly reason: UnscoredReason; readonly detail: string };

/** The part of an image that a reward reads. */
export function judgedImage(image: MadeImage): Pick<JudgeItem, 'edited' | 'unavailable'> {
  if (image.kind === 'made') return { edited: image.image };
  const { reason, detail } = image;
  return { edited: null, unavailable: { reason, detail } };
}

export interface ImageModel {
  /**
   * Generates an image for each request, in order. Waits for an unreachable server. Raises EndpointError when it stays
   * away, so that the run can checkpoint, and RunError for numbers that are not finite.
   */
  generate(requests: readonly ImageRequest[]): Promise<MadeImage[]>;
  /**
   * Stores an iteration's remote images on rank 0. Every rank calls it after they were generated. Absent if nothing is
   * stored.
   */
  keep?(): Promise<void>;
  /** Closes sessions and connections. No request may be in progress. */
  close(): Promise<void>;
}
