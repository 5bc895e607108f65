/** What makes pictures of prompts that a policy wrote: a frozen model in this process, or a server elsewhere. */
import type { RgbImage } from '../core/image.js';
import type { JudgeItem, UnscoredReason } from '../rewards/score/types.js';

/** Seeds of noise are below it. */
export const SEEDS = 2 ** 31;

/** One picture that is wanted. */
export interface PictureRequest {
  /** The episode's name, unique within a run: what comes from elsewhere is stored under it and found again at a resume. */
  readonly key: string;
  /** What to draw: what the policy wrote, which may be empty. */
  readonly prompt: string;
  /** Seed of the initial noise, from 0 to 2^31 - 1: the same prompt and seed give the same picture. */
  readonly seed: number;
}

/**
 * What became of a request. `unavailable` is everything on the maker's side (a refusal, a reply without a picture): the episode is unscored with
 * this reason, for a picture is never invented.
 */
export type MadePicture =
  | {
      readonly kind: 'made';
      readonly image: RgbImage;
      /** Tokens at the prompt's end that the model did not read, since it reads so many and no more; absent for none, and where nobody says. */
      readonly unread?: number;
    }
  | { readonly kind: 'unavailable'; readonly reason: UnscoredReason; readonly detail: string };

/** What a reward sees of a picture. */
export function seen(picture: MadePicture): Pick<JudgeItem, 'edited' | 'unavailable'> {
  if (picture.kind === 'made') return { edited: picture.image };
  const { reason, detail } = picture;
  return { edited: null, unavailable: { reason, detail } };
}

export interface ImageModel {
  /**
   * A picture for each request, in their order. A server that is away is waited for; raises EndpointError when it stays away, so that the run
   * can checkpoint, and RunError for numbers that are not finite.
   */
  generate(requests: readonly PictureRequest[]): Promise<MadePicture[]>;
  /** Called by every rank when an iteration's pictures are made: what came from elsewhere is then stored on rank 0. Absent where nothing is stored. */
  keep?(): Promise<void>;
  /** Ends sessions and connections, when nothing is under way. */
  close(): Promise<void>;
}
