/** The task of `video_actions`: conversations about videos and images, and text answers. */
import pLimit from 'p-limit';
import {
  openQuestions,
  inputDigest,
  clipOf,
  type Turn,
  type VideoQuestion,
  type VideoQuestions,
  type UsualSampling,
} from '../../data/conversations.js';
import { Datasets } from '../../data/datasets.js';
import type { RunResolver } from '../../models/reference.js';
import { clipData, clipVocabulary } from '../../data/tiny/clips.js';
import { sampledSets, wordAnswers, type SampledSet, type SampleRow } from '../../train/scoring/sample_rows.js';
import { openVisionInputs, type VisionInputs } from '../shared/images/vision.js';
import { openWords, visionWords, bareWords, type AnswerTokenizer } from '../shared/words/vocabulary.js';
import {
  WordsTask,
  type QuestionSource,
  type Question,
  type ShownImages,
  type QuestionImages,
} from '../shared/words/task.js';
import type { VideoActionsSettings } from './settings.js';
import { ConfigError, DataError } from '../../core/errors.js';
import { availableParallelism } from 'node:os';
import { LRUCache } from 'lru-cache';
import { encodePng, shrinkImage, type RgbImage } from '../../core/images/image.js';
import { readFitted } from '../../data/image_files.js';
import { framesOf, KEPT_BYTES, type VisionInput } from '../../models/images/vision_input.js';

/** The task and the policy's image inputs. */
export interface VideoTask {
  readonly task: WordsTask<VideoActionsSettings, VideoSource>;
  readonly seeing: VisionInputs;
}

/**
 * The first questions of each list. The answers are the label, the question itself and an empty text. Raises the
 * DataErrors of `openQuestions`.
 */
export function sampleQuestions(settings: VideoActionsSettings, count: number): Promise<SampledSet[]> {
  const { data, prompt } = settings;
  return clipData.sampled(settings, count, (place) =>
    sampledSets(data, async ({ path, media }) => {
      const source = askedSource(openQuestions(place(path), media), prompt);
      return Array.from({ length: Math.min(count, source.length) }, (_, index): SampleRow => {
        const { instruction, expected = '' } = source.ask(index);
        const item = { instruction, expected, source: null, truth: null, row: source.row(index) };
        return { place: source.place(index), item, answers: wordAnswers(item) };
      });
    }),
  );
}

/** Opens the policy's image inputs. Raises the errors of `openVisionInputs`. */
export function openVideoInputs(settings: VideoActionsSettings, resolveRun: RunResolver): VisionInputs {
  return openVisionInputs(settings.policy, openVideoWords(settings, resolveRun).tokenizer, resolveRun);
}

function openVideoWords(settings: VideoActionsSettings, resolveRun: RunResolver): AnswerTokenizer {
  return openWords(settings, resolveRun, () => visionWords(clipVocabulary(), settings));
}

/**
 * Opens datasets, the tokenizer and the image processor for frames. Raises DataError or CheckpointError for missing
 * files.
 */
export async function openVideoTask(settings: VideoActionsSettings, resolveRun: RunResolver): Promise<VideoTask> {
  const { data, prompt } = settings;
  const place = clipData.placesOf(settings);
  const datasets = await Datasets.open(
    settings,
    async ({ path, media }) => askedSource(openQuestions(place(path), media), prompt),
    // Lists of questions are files of rows, whatever their extension.
    (path) => path.replace(/\.json$/, '.jsonl'),
  );
  const words = openVideoWords(settings, resolveRun);
  const seeing = openVisionInputs(settings.policy, words.tokenizer, resolveRun);
  const { min, max, interval, as } = data.frames;
  const usual = { minFrames: min, maxFrames: max, interval };
  if (as === 'video' && seeing.clips === 'frames') {
    throw new ConfigError("data.frames.as is 'video', but this model reads only the frames of a clip, as images", {
      where: 'data.frames.as',
      next: "Set data.frames.as to 'images'.",
    });
  }
  if (as === 'video' && seeing.clips === 'timed steps' && settings.rollout.engine !== null) {
    throw new ConfigError("data.frames.as is 'video', but vLLM writes other marks around this model's clips", {
      where: 'data.frames.as',
      next: "Set data.frames.as to 'images', or rollout.engine to null.",
    });
  }
  const imageInputs = new VideoReader(seeing, usual, as);
  const task = await WordsTask.open(settings, { words, data: datasets, imageInputs });
  return { task, seeing };
}

/** A list of the recipe's questions. `questions` contains the samples. */
export interface VideoSource extends QuestionSource {
  readonly questions: VideoQuestions;
}

interface PromptForm {
  /** Whether the model's chat template writes the prompt. */
  readonly chat: boolean;
  /** A system message for samples that have none. */
  readonly system: string | null;
}

export function askedSource(questions: VideoQuestions, form: PromptForm): VideoSource {
  return {
    name: questions.name,
    length: questions.length,
    remark: questions.remark,
    digest: questions.digest,
    id: (index) => questions.id(index),
    place: (index) => questions.place(index),
    questions,
    ask: (index) => questionOf(questions.read(index), form, questions.place(index)),
    row: (index) => rowOf(questions.read(index)),
    shown: (index) => inputDigest(questions.read(index)),
  };
}

/**
 * Builds a question. Raises DataError, with `where`, for a conversation that needs a chat template when there is none.
 */
export function questionOf({ turns, expected }: VideoQuestion, { chat, system }: PromptForm, where: string): Question {
  const last = turns[turns.length - 1];
  const instruction = wordsOf(last).trim();
  if (chat) {
    const own = turns.map(({ role, parts }) => ({ role, content: [...parts] }));
    const first = system === null || turns[0].role === 'system' ? [] : [{ role: 'system', content: system }];
    return { prompt: [...first, ...own], instruction, expected };
  }
  if (turns.length === 1) return { prompt: bareWords(last.parts), instruction, expected };
  throw new DataError(`found a conversation of ${turns.length} turns with prompt.chat false; allowed: one question`, {
    where,
  });
}

function wordsOf({ parts }: Turn): string {
  return parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
}

function rowOf({ turns, expected, video, images }: VideoQuestion): Readonly<Record<string, unknown>> {
  return { turns: turns.map((turn) => ({ role: turn.role, text: wordsOf(turn) })), expected, video, images };
}

/** Longest side in pixels of frames that are stored for people. */
const SHOWN_SIDE = 160;

/** As one video, or with each frame as a separate image. */
export type ShownAs = VideoActionsSettings['data']['frames']['as'];

/**
 * Reads videos. Raises DataError for videos that cannot be read or sampled, or that do not match their conversation,
 * and EngineError without ffmpeg.
 */
export class VideoReader implements QuestionImages {
  /** Inputs by content, so that a clip with several questions is opened once. */
  readonly #seen = new LRUCache<string, readonly VisionInput[]>({
    maxSize: KEPT_BYTES,
    sizeCalculation: (images) => images.reduce((sum, { frames }) => sum + pixelBytes(frames), 1),
  });

  /** Images being opened, so that none is opened twice at once. */
  readonly #opening = new Map<string, Promise<readonly VisionInput[]>>();
  readonly #limit = pLimit(availableParallelism());
  readonly #failures: unknown[] = [];

  constructor(
    readonly inputs: Pick<VisionInputs, 'processor' | 'tokens' | 'marks'>,
    private readonly usual: UsualSampling,
    /** The form in which the policy sees the frames of a clip. */
    private readonly as: ShownAs,
  ) {}

  maxSideTokens({ questions }: VideoSource, index: number): number {
    const { images, meta, video } = questions.read(index);
    const { processor } = this.inputs;
    const stills = images.length * processor.mostImageTokens;
    if (video === null) return stills;
    const most = meta.maxFrames ?? Math.max(meta.minFrames ?? 0, this.usual.maxFrames);
    const counts = [...(meta.segments ?? [most])];
    // The last segment may contain frames beyond the counted ones.
    counts[counts.length - 1] += counts.length;
    const frames = counts.reduce((sum, count) => sum + Math.min(most, count), 0);
    const clip = { video: processor.mostClipTokens(frames), images: processor.mostStillsTokens(frames) }[this.as];
    return clip + stills;
  }

  async show(source: VideoSource, index: number): Promise<ShownImages> {
    const images = await this.#images(source, index);
    return { images, png: () => filmstrip(framesOf(images)) };
  }

  #images(source: VideoSource, index: number): Promise<readonly VisionInput[]> {
    const question = source.questions.read(index);
    const shown = shownBy(question);
    const seen = this.#seen.get(shown);
    if (seen !== undefined) return Promise.resolve(seen);
    const opening = this.#opening.get(shown) ?? this.#begin(shown, question, source.place(index));
    this.#opening.set(shown, opening);
    return opening;
  }

  async #begin(shown: string, question: VideoQuestion, where: string): Promise<readonly VisionInput[]> {
    const before = this.#failures.length;
    try {
      return await this.#limit(async () => {
        // If another sample of the batch failed meanwhile, the batch is given up.
        if (this.#failures.length > before) throw this.#failures[before];
        const images = await this.#open(question, where).catch((error: unknown) => {
          this.#failures.push(error);
          throw error;
        });
        this.#seen.set(shown, images);
        return images;
      });
    } finally {
      this.#opening.delete(shown);
    }
  }

  /** The images of a question, in the order of their placeholders in the conversation. */
  async #open(question: VideoQuestion, where: string): Promise<readonly VisionInput[]> {
    const { processor } = this.inputs;
    const files = question.images.values();
    const images: VisionInput[] = [];
    for (const { type } of question.turns.flatMap(({ parts }) => parts)) {
      if (type === 'video') {
        const clip = await clipOf(question, this.usual, where);
        const shown = { video: () => processor.video(clip, where), images: () => processor.stills(clip.frames, where) };
        images.push(...(await shown[this.as]()));
      } else if (type === 'image') {
        const { image } = await readFitted(String(files.next().value), where, null);
        images.push(...processor.inputs(image, where));
      }
    }
    return images;
  }
}

/** Identifies a question's images and clips, their order, and their sampling. */
function shownBy({ turns, video, images, meta }: VideoQuestion): string {
  return JSON.stringify([turns.map(({ parts }) => parts.map(({ type }) => type)), video, images, meta]);
}

function pixelBytes(frames: readonly RgbImage[]): number {
  return frames.reduce((sum, { data }) => sum + data.length, 0);
}

/** Frames side by side with a white gap between them. */
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
