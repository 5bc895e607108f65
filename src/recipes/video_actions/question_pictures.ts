/** What a question about a video shows: its frames and pictures as the policy reads them. */
import { availableParallelism } from 'node:os';
import { LRUCache } from 'lru-cache';
import pLimit from 'p-limit';
import { encodePng, shrinkImage, type RgbImage } from '../../core/image.js';
import { clipOf, type UsualSampling, type VideoQuestion } from '../../data/conversations.js';
import { readFitted } from '../../data/pictures.js';
import { withPictures, withStills } from '../../models/pictures/placeholders.js';
import type { MarkedPictureTokens } from '../../nets/vision/config.js';
import { KEPT_BYTES, type Picture } from '../../models/pictures/picture.js';
import type { PictureProcessor } from '../../models/pictures/processor.js';
import type { PicturedPrompt, QuestionPictures } from '../open_words_task.js';
import type { VideoSource } from './questions.js';
import type { VideoActionsSettings } from './settings.js';

/** Longest side of frames that are shown to people. */
const SHOWN_SIDE = 160;

/** As one video, or each frame as an image of its own. */
export type ShownAs = VideoActionsSettings['data']['frames']['as'];

/** Raises DataError for videos that cannot be read or sampled, or do not go with their words; EngineError where ffmpeg is not installed. */
export class VideoSight implements QuestionPictures {
  /** By content: a clip with several questions is opened once. */
  readonly #seen = new LRUCache<string, readonly Picture[]>({
    maxSize: KEPT_BYTES,
    sizeCalculation: (pictures) => pictures.reduce((sum, { frames }) => sum + pixelBytes(frames), 1),
  });

  /** Pictures being opened, so that none is opened twice at once. */
  readonly #opening = new Map<string, Promise<readonly Picture[]>>();
  readonly #limit = pLimit(availableParallelism());
  readonly #failures: unknown[] = [];

  constructor(
    private readonly processor: PictureProcessor,
    private readonly tokens: MarkedPictureTokens,
    private readonly usual: UsualSampling,
    /** What the frames of a clip are shown as. */
    private readonly as: ShownAs,
  ) {}

  mostTokens({ questions }: VideoSource, index: number): number {
    const { images, meta } = questions.read(index);
    const { sizes, image, video } = this.processor.settings;
    const perToken = (sizes.patch_size * sizes.spatial_merge_size) ** 2;
    const most = meta.maxFrames ?? Math.max(meta.minFrames ?? 0, this.usual.maxFrames);
    const counts = [...(meta.segments ?? [most])];
    // The last segment may have some frames that are not counted.
    counts[counts.length - 1] += counts.length;
    const frames = counts.reduce((sum, count) => sum + Math.min(most, count), 0);
    const steps = Math.ceil(frames / { video: sizes.temporal_patch_size, images: 1 }[this.as]);
    // The words have the marks of one picture for the clip.
    const marks = { video: 0, images: 2 * (frames - 1) }[this.as];
    return Math.ceil((steps * video.max_pixels + images.length * image.max_pixels) / perToken) + marks;
  }

  async show(source: VideoSource, index: number, ids: readonly number[]): Promise<PicturedPrompt> {
    const place = source.place(index);
    const pictures = await this.#pictures(source, index);
    const stills = pictures.length - ids.filter((id) => id === this.tokens.image_token_id).length;
    const placed = { video: () => ids, images: () => withStills(ids, stills, this.tokens, place) }[this.as]();
    return {
      ids: withPictures(placed, pictures, this.tokens, this.processor.settings.sizes, place),
      pictures,
      png: () => filmstrip(pictures.flatMap(({ frames }) => withoutPadding(frames))),
    };
  }

  #pictures(source: VideoSource, index: number): Promise<readonly Picture[]> {
    const question = source.questions.read(index);
    const shown = shownBy(question);
    const seen = this.#seen.get(shown);
    if (seen !== undefined) return Promise.resolve(seen);
    const opening = this.#opening.get(shown) ?? this.#begin(shown, question, source.place(index));
    this.#opening.set(shown, opening);
    return opening;
  }

  async #begin(shown: string, question: VideoQuestion, where: string): Promise<readonly Picture[]> {
    const before = this.#failures.length;
    try {
      return await this.#limit(async () => {
        // A sample that waited together with one that cannot be shown belongs to a batch that is given up.
        if (this.#failures.length > before) throw this.#failures[before];
        const pictures = await this.#open(question, where).catch((error: unknown) => {
          this.#failures.push(error);
          throw error;
        });
        this.#seen.set(shown, pictures);
        return pictures;
      });
    } finally {
      this.#opening.delete(shown);
    }
  }

  /** In the order of their placeholders in the conversation. */
  async #open(question: VideoQuestion, where: string): Promise<readonly Picture[]> {
    const images = question.images.values();
    const pictures: Picture[] = [];
    for (const { type } of question.turns.flatMap(({ parts }) => parts)) {
      if (type === 'video') {
        const { frames, seconds } = await clipOf(question, this.usual, where);
        if (this.as === 'images') pictures.push(...(await this.processor.stills(frames, where)));
        else pictures.push(await this.processor.video(frames, seconds / frames.length, where));
      } else if (type === 'image') {
        const { image } = await readFitted(String(images.next().value), where, null);
        pictures.push(this.processor.image(image, where));
      }
    }
    return pictures;
  }
}

/** A key for what a question shows, in order, and how it is sampled. */
function shownBy({ turns, video, images, meta }: VideoQuestion): string {
  return JSON.stringify([turns.map(({ parts }) => parts.map(({ type }) => type)), video, images, meta]);
}

function pixelBytes(frames: readonly RgbImage[]): number {
  return frames.reduce((sum, { data }) => sum + data.length, 0);
}

/** Steps of several frames are padded with the last frame itself. */
function withoutPadding(frames: readonly RgbImage[]): readonly RgbImage[] {
  const last = frames.at(-1);
  return frames.slice(0, frames.findIndex((frame) => frame === last) + 1);
}

/** Frames side by side, with a white gap between them. */
async function filmstrip(frames: readonly RgbImage[]): Promise<Uint8Array> {
  const small = await Promise.all(
    frames.map(async (frame) => {
      const by = Math.min(1, SHOWN_SIDE / Math.max(frame.width, frame.height));
      const [width, height] = [frame.width, frame.height].map((side) => Math.max(1, Math.round(side * by)));
      return by === 1 ? frame : shrinkImage(frame, width, height);
    }),
  );
  const gap = 2;
  const width = small.reduce((sum, frame) => sum + frame.width + gap, -gap);
  const height = Math.max(...small.map((frame) => frame.height));
  const data = new Uint8Array(width * height * 3).fill(255);
  let left = 0;
  for (const frame of small) {
    for (let y = 0; y < frame.height; y++) {
      data.set(frame.data.subarray(y * frame.width * 3, (y + 1) * frame.width * 3), (y * width + left) * 3);
    }
    left += frame.width + gap;
  }
  return encodePng({ width, height, data });
}
