/**
 * The tiny world in motion: short videos in which parts on a shelf are attached to a board, one after another. The
 * question is which parts. The files have the form of data/conversations.ts:
 *
 *   <root>/clips-<hash>/clips/{described,labelled,train,validation}/conversations.json, 00000.mp4, …
 *
 * In `described`, the answer describes the actions in other words. A model trained on it can see and can look up a part in
 * a list, but it does not know the form of an answer.
 *
 * Each action is a segment of the video. Some parts are on the board from the start and some stay on the shelf, so that the
 * last frame does not show the answer.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { writeFileAtomic } from '../../core/files.js';
import type { RgbImage } from '../../core/images/image.js';
import { RandomStream } from '../../core/random.js';
import { CONVERSATIONS_NAME } from '../conversations.js';
import { writeMp4s } from '../video/ffmpeg.js';
import type { TinyClipSettings } from './settings.js';
import { tinyDataset } from './build.js';
import { drawScene, templateOf } from './draw.js';
import { COLOURS, DEFAULT_GEOMETRY, SHAPES, type Geometry, type SceneObject } from './world.js';

export const CLIP_SPLITS = ['described', 'labelled', 'train', 'validation'] as const;
export type ClipSplit = (typeof CLIP_SPLITS)[number];

export interface ClipOptions {
  readonly seed: number;
  /** Clips in each split. */
  readonly sizes: Readonly<Record<ClipSplit, number>>;
  /** Questions about each clip of `described` and `train`. */
  readonly lists: number;
}

/** One part for each column: on the shelf, the topmost row, or on the board, the lowest. */
const GEOMETRY: Geometry = DEFAULT_GEOMETRY;
const PARTS = GEOMETRY.columns;
/** Minimum and maximum number of frames of an action. The part moves down between the first and the last. */
const MIN_FRAMES = 4;
const MAX_FRAMES = 6;
const FRAMES_PER_SECOND = 4;

/** Only the first and the last frame of each action are shown. */
const SHOWN = { min_frames: 2, max_frames: 2 };

export interface AssemblyStep {
  /** The column of the part that is attached. */
  readonly column: number;
  readonly frames: number;
}

/** A clip with its question. */
export interface AssemblyClip {
  /** By column. */
  readonly parts: readonly SceneObject[];
  /** Columns whose parts are on the board from the start. */
  readonly attached: ReadonlySet<number>;
  readonly steps: readonly AssemblyStep[];
  /** Columns in the order in which the question lists their parts. */
  readonly options: readonly number[];
}

/** The clip at an index of a split: one or two actions, on parts of four colors. */
export function drawClip(seed: number, split: ClipSplit, index: number): AssemblyClip {
  const random = new RandomStream(seed, 'tiny', 'clips', split, index);
  const colours = random.shuffled(COLOURS).slice(0, PARTS);
  const columns = random.shuffled(colours.map((_, column) => column));
  const actions = 1 + random.integer(2);
  const attached = random.integer(3);
  return {
    parts: colours.map((colour) => ({ colour, shape: random.pick(SHAPES) })),
    steps: columns
      .slice(0, actions)
      .map((column) => ({ column, frames: MIN_FRAMES + random.integer(MAX_FRAMES - MIN_FRAMES + 1) })),
    attached: new Set(columns.slice(actions, Math.min(actions + attached, PARTS))),
    options: random.shuffled(columns),
  };
}

/** The frames of a clip, action after action. */
export function framesOf({ parts, attached, steps }: AssemblyClip): RgbImage[] {
  const { columns, rows, cell } = GEOMETRY;
  const lowest = (rows - 1) * cell;
  const tops = parts.map((_, column) => (attached.has(column) ? lowest : 0));
  return steps.flatMap(({ column, frames }) =>
    Array.from({ length: frames }, (_, frame) => {
      tops[column] = Math.round((lowest * frame) / (frames - 1));
      const image = drawScene({ geometry: GEOMETRY, cells: Array(columns * rows).fill(null) });
      for (const [place, part] of parts.entries()) {
        const { pixels } = templateOf(part, cell);
        for (let y = 0; y < cell; y++) {
          const row = pixels.subarray(y * cell * 3, (y + 1) * cell * 3);
          image.data.set(row, ((tops[place] + y) * image.width + place * cell) * 3);
        }
      }
      return image;
    }),
  );
}

const QUESTION = 'Which parts are attached ?';

/** A clip's question and answer as a sample of a list. */
export function sampleOf(clip: AssemblyClip, id: number, video: string): object {
  const { parts, steps } = clip;
  const order = steps.map(({ column }) => parts[column].colour).join(' then ');
  const answer = steps.map(({ column }) => itemOf(clip, column)).join(' ');
  return sample(clip, id, video, `<think> ${order} </think> <answer> ${answer} </answer>`);
}

/** The same question, with the answer in other words: `red (4) then yellow (2)`. */
export function describedSampleOf(clip: AssemblyClip, id: number, video: string): object {
  const named = clip.steps.map(({ column }) => `${clip.parts[column].colour} ${numberOf(clip, column)}`);
  return sample(clip, id, video, named.join(' then '));
}

function sample(clip: AssemblyClip, id: number, video: string, label: string): object {
  const list = clip.options.map((column) => itemOf(clip, column));
  return {
    id,
    conversations: [
      { from: 'human', value: `<video>\n${QUESTION}\n${list.join('\n')}` },
      { from: 'gpt', value: label },
    ],
    video,
    meta: { frame_cnts: clip.steps.map(({ frames }) => frames), ...SHOWN, dynamic_sample: true },
  };
}

function itemOf(clip: AssemblyClip, column: number): string {
  return `${numberOf(clip, column)} ${clip.parts[column].colour}`;
}

function numberOf({ options }: AssemblyClip, column: number): string {
  return `(${options.indexOf(column) + 1})`;
}

/** A clip with several questions, each with the list in another order. */
function askedAs(clip: AssemblyClip, lists: number, random: RandomStream): AssemblyClip[] {
  return Array.from({ length: lists }, (_, i) =>
    i === 0 ? clip : { ...clip, options: random.shuffled(clip.options) },
  );
}

/** Every word of questions and answers, in a fixed order, so that a tokenizer can be made from it. */
export function clipVocabulary(): string[] {
  const numbers = Array.from({ length: PARTS }, (_, i) => `(${i + 1})`);
  const tags = ['think', 'answer'].flatMap((tag) => [`<${tag}>`, `</${tag}>`]);
  return [...QUESTION.split(' '), ...numbers, ...COLOURS, 'then', ...tags];
}

/** The clips of each split. Making them raises EngineError without ffmpeg. */
export const clipData = tinyDataset<TinyClipSettings, ClipOptions>({
  things: 'clips',
  name: 'clips',
  optionsOf: ({ seed, counts, lists }) => ({ seed, sizes: counts, lists }),
  // A split that is not requested does not affect the name.
  entryOf: ({ seed, sizes: { described, ...others }, lists }) => {
    const sizes = described === 0 ? others : { described, ...others };
    return { seed, sizes, ...(lists === 1 ? {} : { lists }) };
  },
  write: async (folder, options) => {
    for (const split of CLIP_SPLITS.filter((each) => options.sizes[each] > 0)) {
      const place = join(folder, 'clips', split);
      mkdirSync(place, { recursive: true });
      const clips = Array.from({ length: options.sizes[split] }, (_, i) => drawClip(options.seed, split, i));
      const files = await writeMp4s(place, clips.map(framesOf), FRAMES_PER_SECOND);
      const several = split === 'described' || split === 'train';
      const sampled = split === 'described' ? describedSampleOf : sampleOf;
      const questions = clips.flatMap((clip, i) => {
        const random = new RandomStream(options.seed, 'tiny', 'clips', 'lists', split, i);
        return askedAs(clip, several ? options.lists : 1, random).map((one) => ({ clip: one, file: files[i] }));
      });
      const samples = questions.map(({ clip, file }, id) => sampled(clip, id, file));
      writeFileAtomic(join(place, CONVERSATIONS_NAME), `${JSON.stringify(samples, null, 1)}\n`);
    }
  },
});
