/** Makes pictures of prompts that a policy wrote: a frozen model in this process, or a remote server. */
import type { RgbImage } from '../../core/images/image.js';
import type { JudgeItem, UnscoredReason } from '../../rewards/score/types.js';

/** Seeds of noise are below this. */
export const SEEDS = 2 ** 31;

/** A request for one picture. */
export interface PictureRequest {
  /** The episode's name, unique within a run: remote pictures are stored under it and found again at a resume. */
  readonly key: string;
  /** What to draw: what the policy wrote, which may be empty. */
  readonly prompt: string;
  /** Seed of the initial noise, from 0 to 2^31 - 1: the same prompt and seed give the same picture. */
  readonly seed: number;
}

/**
 * The result of a request. `unavailable` covers every failure of the image model or server (a refusal, a reply without a picture): the episode is
 * then unscored with this reason, for a picture is never invented.
 */
export type MadePicture =
  | {
      readonly kind: 'made';
      readonly image: RgbImage;
      /** Tokens at the prompt's end beyond the model's limit, which it did not read; absent if there are none, and if unknown. */
      readonly unread?: number;
    }
  | { readonly kind: 'unavailable'; readonly reason: UnscoredReason; readonly detail: string };

/** The part of a picture that a reward sees. */
export function judgedPicture(picture: MadePicture): Pick<JudgeItem, 'edited' | 'unavailable'> {
  if (picture.kind === 'made') return { edited: picture.image };
  const { reason, detail } = picture;
  return { edited: null, unavailable: { reason, detail } };
}

export interface ImageModel {
  /**
   * A picture for each request, in their order. Waits for a server that is away; raises EndpointError when it stays away, so that the run can
   * checkpoint, and RunError for numbers that are not finite.
   */
  generate(requests: readonly PictureRequest[]): Promise<MadePicture[]>;
  /** Called by every rank once an iteration's pictures are made: remote pictures are then stored on rank 0. Absent if nothing is stored. */
  keep?(): Promise<void>;
  /** Ends sessions and connections; nothing may be under way. */
  close(): Promise<void>;
}
