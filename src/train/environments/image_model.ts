/** Makes images of prompts that a policy wrote: a frozen model in this process, or a remote server. */
import type { RgbImage } from '../../core/images/image.js';
import type { JudgeItem, UnscoredReason } from '../../rewards/score/types.js';

/** Seeds of noise are below this. */
export const SEEDS = 2 ** 31;

/** A request for one image. */
export interface ImageRequest {
  /** The episode's name, unique within a run: remote images are stored under it and found again at a resume. */
  readonly key: string;
  /** What to draw: what the policy wrote, which may be empty. */
  readonly prompt: string;
  /** Seed of the initial noise, from 0 to 2^31 - 1: the same prompt and seed give the same image. */
  readonly seed: number;
}

/**
 * The result of a request. `unavailable` covers every failure of the image model or server (a refusal, a reply without an image): the episode is
 * then unscored with this reason, for an image is never invented.
 */
export type MadeImage =
  | {
      readonly kind: 'made';
      readonly image: RgbImage;
      /** Tokens at the prompt's end beyond the model's limit, which it did not read. Absent if there are none, and if unknown. */
      readonly unread?: number;
    }
  | { readonly kind: 'unavailable'; readonly reason: UnscoredReason; readonly detail: string };

/** The part of an image that a reward sees. */
export function judgedImage(image: MadeImage): Pick<JudgeItem, 'edited' | 'unavailable'> {
  if (image.kind === 'made') return { edited: image.image };
  const { reason, detail } = image;
  return { edited: null, unavailable: { reason, detail } };
}

export interface ImageModel {
  /**
   * An image for each request, in their order. Waits for a server that is away; raises EndpointError when it stays away, so that the run can
   * checkpoint, and RunError for numbers that are not finite.
   */
  generate(requests: readonly ImageRequest[]): Promise<MadeImage[]>;
  /** Called by every rank once an iteration's images are made: remote images are then stored on rank 0. Absent if nothing is stored. */
  keep?(): Promise<void>;
  /** Ends sessions and connections. Nothing may be under way. */
  close(): Promise<void>;
}
