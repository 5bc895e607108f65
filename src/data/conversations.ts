/**
 * Questions about a video, images or both, in the form that Qwen2.5-VL's fine-tuning takes (https://github.com/QwenLM/Qwen2.5-VL): a JSON
 * list of samples, or one sample per line (.jsonl), each {id, conversations: [{from: human|gpt, value}], video?, image?, meta?}. `<video>`
 * and `<image>` in a human turn mark the places of the files. The last turn is the labeled answer. `meta` determines the sampling of the
 * video: {frame_cnts, min_frames, max_frames, dynamic_sample}. `frame_cnts` contains the number of frames of each action.
 */
import { closeSync, existsSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { basename, dirname, extname, join, resolve } from 'node:path';
import { z } from 'zod';
import { DataError, must } from '../core/errors.js';
import { sha256 } from '../core/images/image.js';
import { parseJson, textOf } from '../core/text.js';
import { missingFileAdvice, type ListDigest } from './datalist.js';
import { beginningOf, jsonLine, linesOf, readWhole } from './large_texts.js';
import { oneOf } from './types.js';
import { readClip, readClipNow, type Clip } from './video/clip.js';
import type { Sampling } from './video/sampling.js';

/** Name of the list in a dataset's folder. */
export const CONVERSATIONS_NAME = 'conversations.json';

/** A piece of a turn: words, or the place of an image or of the video. */
export type Part = { readonly type: 'text'; readonly text: string } | { readonly type: 'image' | 'video' };

export interface Turn {
  readonly role: 'system' | 'user' | 'assistant';
  readonly parts: readonly Part[];
}

/** A question about a video, images or both. */
export interface VideoQuestion {
  /** The turns before the answer. They contain the video once if there is one, and end with the user's turn. */
  readonly turns: readonly Turn[];
  /** The labeled answer, as the dataset has it. */
  readonly expected: string;
  /** Null for a question about images alone. */
  readonly video: string | null;
  /** The files of the images, in the order of their placeholders. */
  readonly images: readonly string[];
  /** The sample's own sampling settings. */
  readonly meta: {
    readonly minFrames: number | null;
    readonly maxFrames: number | null;
    readonly segments: readonly number[] | null;
  };
}

export interface VideoQuestions {
  /** The path as given. */
  readonly name: string;
  readonly length: number;
  readonly remark: null;
  /** Covers the list and the sizes of its videos and images. */
  readonly digest: ListDigest;
  read(index: number): VideoQuestion;
  /** Names a sample independently of the machine. */
  id(index: number): string;
  /** The location of a sample, for messages. */
  place(index: number): string;
}

const frames = z.int().min(1);
const sampleSchema = z.looseObject({
  conversations: z.array(z.object({ from: z.string(), value: z.string() })).min(1),
  video: z
    .union([z.string().min(1), z.tuple([z.string().min(1)]).transform(([only]) => only)])
    .nullable()
    .default(null),
  image: z
    .union([
      z
        .string()
        .min(1)
        .transform((one) => [one]),
      z.array(z.string().min(1)),
    ])
    .default([]),
  meta: z
    .looseObject({
      frame_cnts: z.array(frames).min(1).optional(),
      min_frames: frames.optional(),
      max_frames: frames.optional(),
      dynamic_sample: z.boolean().default(false),
    })
    .default({ dynamic_sample: false }),
});
type RawSample = z.output<typeof sampleSchema>;

const ALLOWED: Readonly<Record<string, string>> = {
  conversations: 'a list of {from, value}',
  video: 'the path of one video, or nothing for a question about images',
  image: 'a path, or a list of paths',
  meta: '{frame_cnts: whole numbers above 0, min_frames, max_frames, dynamic_sample: true or false}',
};

const ROLES: Readonly<Record<string, Turn['role']>> = {
  system: 'system',
  human: 'user',
  user: 'user',
  gpt: 'assistant',
  assistant: 'assistant',
};

interface Found {
  readonly place: string;
  /** Null if something is wrong with the sample. */
  readonly question: VideoQuestion | null;
  readonly problem: DataError | null;
}

/** A list with everything that is wrong with its samples, one error for each broken one. */
export interface ReadQuestions {
  readonly path: string;
  readonly samples: readonly Found[];
  readonly problems: readonly DataError[];
  readonly digest: ListDigest;
}

/**
 * Reads a list (a .json or .jsonl file, or a folder with conversations.json) and checks that the files in it exist,
 * without opening them.
 * @param media the folder to which relative paths are relative. Null for the list's own folder. Raises DataError if the list
 * itself cannot be read.
 */
export function readQuestions(path: string, media: string | null = null): ReadQuestions {
  const file = listFile(path);
  const bytes = readWhole(file);
  const folder = media ?? dirname(file);
  const sizes: number[] = [];
  const samples = entries(bytes, file).map(({ value, place, problem: broken }): Found => {
    if (broken !== null) return { place, question: null, problem: broken };
    const read = readSample(value, folder);
    if (Array.isArray(read)) {
      const problem = new DataError(read.join('; '), { where: place, next: 'Correct this sample, or leave it out.' });
      return { place, question: null, problem };
    }
    sizes.push(...filesOf(read).map((named) => statSync(named).size));
    return { place, question: read, problem: null };
  });
  const problems = samples.flatMap(({ problem }) => problem ?? []);
  if (samples.length === 0) throw new DataError('the list has no sample', { where: file });
  const ids = sha256(bytes);
  return { path: file, samples, problems, digest: { ids, files: sha256(JSON.stringify([ids, sizes])) } };
}

/** Opens a list all of whose samples are valid. Raises the DataErrors of `readQuestions`, and a DataError that names all invalid samples. */
export function openQuestions(path: string, media: string | null = null): VideoQuestions {
  const { path: file, samples, problems, digest } = readQuestions(path, media);
  if (problems.length > 0) throw oneOf(file, problems);
  const questions = samples.flatMap(({ question }) => question ?? []);
  return {
    name: path,
    length: questions.length,
    remark: null,
    digest,
    read: (index) => questions[index],
    // Lists in folders all have the same name.
    id: (index) => `${basename(dirname(file))}/${basename(file)}:${index + 1}`,
    place: (index) => samples[index].place,
  };
}

/** The sampling of a video whose own sample has no settings. */
export type UsualSampling = Omit<Sampling, 'segments'>;

/** The frames of a question's video, which it must have. Raises DataError and the EngineErrors of `readClip`. */
export function clipOf(question: VideoQuestion, usual: UsualSampling, place: string): Promise<Clip> {
  return readClip(must(question.video, 'the video of a question'), samplingOf(question, usual), place);
}

/** Opens the first video of a list before a run, if it has one. Raises DataError and the EngineErrors of `readClip`. */
export function checkFirstVideo(questions: VideoQuestions, usual: UsualSampling): void {
  for (let index = 0; index < questions.length; index++) {
    const question = questions.read(index);
    if (question.video === null) continue;
    readClipNow(question.video, samplingOf(question, usual), questions.place(index));
    return;
  }
}

/** The files of a question: its video, then its images. */
function filesOf({ video, images }: Pick<VideoQuestion, 'video' | 'images'>): readonly string[] {
  return video === null ? images : [video, ...images];
}

function samplingOf({ meta }: VideoQuestion, usual: UsualSampling): Sampling {
  const { minFrames, maxFrames, segments } = meta;
  const least = minFrames ?? usual.minFrames;
  return { ...usual, minFrames: least, maxFrames: maxFrames ?? Math.max(least, usual.maxFrames), segments };
}

const GLANCE_BYTES = 2 ** 20;

/** Whether a file contains such a list, judged by its beginning. */
export function isQuestionList(path: string): boolean {
  if (!['.json', '.jsonl'].includes(extname(path)) || !existsSync(path)) return false;
  return /"conversations"\s*:/.test(beginningOf(path, GLANCE_BYTES));
}

function listFile(path: string): string {
  const absolute = resolve(path);
  const file = existsSync(absolute) && statSync(absolute).isDirectory() ? join(absolute, CONVERSATIONS_NAME) : absolute;
  if (existsSync(file)) return file;
  throw new DataError('there is no such dataset', { where: file, next: missingFileAdvice(file) });
}

/** The longest list that fits into a string. */
const MAX_LIST_BYTES = 500e6;

/** The content at a sample's place. */
interface Entry {
  readonly place: string;
  readonly value: unknown;
  /** Set for a line that is not JSON. */
  readonly problem: DataError | null;
}

function entries(bytes: Uint8Array, file: string): Entry[] {
  if (extname(file) === '.jsonl') {
    return Array.from(linesOf(bytes)).flatMap((line, i): Entry[] => {
      const place = `${file}:${i + 1}`;
      try {
        const value = jsonLine(line, file, i + 1);
        return value === undefined ? [] : [{ place, value, problem: null }];
      } catch (cause) {
        if (!(cause instanceof DataError)) throw cause;
        return [{ place, value: null, problem: cause }];
      }
    });
  }
  if (bytes.length > MAX_LIST_BYTES) {
    throw new DataError('found one list of more than 500 MB; allowed: smaller ones, or a sample on each line', {
      where: file,
      next: 'Write it as .jsonl.',
    });
  }
  const list = parseJson(textOf(bytes, file), file);
  if (!Array.isArray(list)) {
    throw new DataError('found no list of samples; allowed: [{id, conversations, video or image}, …]', { where: file });
  }
  return list.map((value: unknown, i) => ({ value, place: `${file}:sample ${i + 1}`, problem: null }));
}

/** A sample, or its problem. */
function readSample(value: unknown, folder: string): VideoQuestion | string[] {
  const parsed = sampleSchema.safeParse(value);
  if (!parsed.success) {
    const fields = new Set(parsed.error.issues.map(({ path: [field] }) => String(field ?? '')));
    return [...fields].map((field) => wrongField(value, field));
  }
  const { conversations, video, image, meta } = parsed.data;
  const videoFile = video === null ? null : resolve(folder, video);
  const images = image.map((one) => resolve(folder, one));
  const problems = [...wrongTurns(parsed.data), ...wrongMeta(meta)];
  for (const file of filesOf({ video: videoFile, images })) {
    if (!existsSync(file)) problems.push(`there is no file ${file}`);
  }
  if (problems.length > 0) return problems;
  const { min_frames = null, max_frames = null, frame_cnts = null, dynamic_sample } = meta;
  return {
    turns: conversations.slice(0, -1).map(({ from, value: content }) => turnOf(ROLES[from], content)),
    expected: conversations[conversations.length - 1].value,
    video: videoFile,
    images,
    meta: { minFrames: min_frames, maxFrames: max_frames, segments: dynamic_sample ? frame_cnts : null },
  };
}

function wrongField(value: unknown, field: string): string {
  if (typeof value !== 'object' || value === null) {
    return 'found no object; allowed: {id, conversations, video or image}';
  }
  const found = (value as Record<string, unknown>)[field];
  const shown = found === undefined ? 'nothing' : JSON.stringify(found).slice(0, 60);
  return `found ${shown} as '${field}'; allowed: ${ALLOWED[field] ?? 'another value'}`;
}

function wrongTurns({ conversations, video, image }: RawSample): string[] {
  const roles = conversations.map(({ from }) => ROLES[from]);
  const strange = conversations.find((_, i) => roles[i] === undefined);
  if (strange !== undefined) return [`found a turn from '${strange.from}'; allowed: human, gpt, system`];
  const problems: string[] = [];
  const last = conversations[conversations.length - 1].value;
  const block = /<answer>([^]*?)<\/answer>/.exec(last);
  if (roles.at(-1) !== 'assistant') problems.push("there is no answer: the last turn is not gpt's");
  else if ((block?.[1] ?? last).trim() === '') problems.push('the labeled answer is empty');
  else if (roles.at(-2) !== 'user') problems.push("the turn before the answer is not the human's");
  const content = conversations.flatMap(({ value }, i) => (roles[i] === 'user' ? [value] : [])).join('\n');
  const [videos, placeholders] = [count(content, '<video>'), count(content, '<image>')];
  if (video === null && image.length === 0) problems.push("found neither 'video' nor 'image'; allowed: one or both");
  else if (video === null && videos > 0) problems.push(`found <video> ${plural(videos, 'time')}, but no 'video'`);
  else if (video !== null && videos !== 1) {
    problems.push(`found <video> ${plural(videos, 'time')} in human turns; allowed: once`);
  }
  if (placeholders !== image.length) {
    problems.push(
      `found ${plural(image.length, 'file')} of images, but <image> ${plural(placeholders, 'time')}; allowed: as many as files`,
    );
  }
  return problems;
}

function wrongMeta({ frame_cnts, min_frames, max_frames, dynamic_sample }: RawSample['meta']): string[] {
  const problems: string[] = [];
  if (dynamic_sample && frame_cnts === undefined) problems.push('meta.dynamic_sample needs meta.frame_cnts');
  if (min_frames !== undefined && max_frames !== undefined && min_frames > max_frames) {
    problems.push(`meta.min_frames ${min_frames} is more than meta.max_frames ${max_frames}`);
  }
  return problems;
}

function plural(number: number, what: string): string {
  return `${number} ${what}${number === 1 ? '' : 's'}`;
}

function count(text: string, tag: string): number {
  return text.split(tag).length - 1;
}

/** Splits a human turn at the places of files. */
function turnOf(role: Turn['role'], content: string): Turn {
  if (role !== 'user') return { role, parts: [{ type: 'text', text: content }] };
  const pieces = content.split(/(<image>|<video>)/);
  const parts = pieces.flatMap((piece): Part[] => {
    if (piece === '<video>') return [{ type: 'video' }];
    if (piece === '<image>') return [{ type: 'image' }];
    return piece === '' ? [] : [{ type: 'text', text: piece }];
  });
  return { role, parts };
}

/** Identifies the videos and images of a question. */
export async function inputDigest(question: VideoQuestion): Promise<string> {
  return sha256(JSON.stringify(filesOf(question).map(fileMark)));
}

/**
 * The bytes at the beginning of a file that identify it, together with its size: whole videos would take long to read.
 */
const BEGINNING = 1 << 16;

function fileMark(path: string): string {
  const file = openSync(path, 'r');
  try {
    const bytes = Buffer.alloc(BEGINNING);
    const read = readSync(file, bytes);
    return `${fstatSync(file).size} ${sha256(bytes.subarray(0, read))}`;
  } finally {
    closeSync(file);
  }
}
