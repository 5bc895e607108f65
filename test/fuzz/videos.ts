/**
 * Reads odd video files with the clip reader and with the dataset check: each file has to give the frames that are visible at the requested times, or
 * one clear message.
 */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DataError } from '../../src/core/errors.js';
import { RandomStream } from '../../src/core/random.js';
import { checkDataset } from '../../src/data/check.js';
import { readClip, type Clip } from '../../src/data/video/clip.js';
import type { Sampling } from '../../src/data/video/sampling.js';
import { frameShown, whiteCorner } from './video_bytes.js';
import { KINDS, type Expected } from './video_kinds.js';
import type { Drawn } from './video_writing.js';

export interface OddCase {
  readonly number: number;
  readonly kind: string;
  readonly path: string;
  readonly expected: Expected;
  readonly sampling: Sampling;
}

/** The result of a case: a clip or a message, and what is wrong with it; null if nothing is wrong. */
export interface OddResult extends OddCase {
  readonly message: string | null;
  readonly wrong: string | null;
  /** Whether the clip differs from the drawn images because of damage that no decoder can detect. */
  readonly untold: boolean;
}

/** The tolerance for equal times, in seconds: files round times to ticks of at most 1/600 s. */
const TICK = 0.00168;

/** Writes the file of a case; the same number gives the same file. All kinds take turns. */
export function makeOddVideo(folder: string, seed: string, number: number): OddCase {
  const kinds = Object.keys(KINDS);
  const kind = kinds[number % kinds.length];
  const random = new RandomStream('odd videos', seed, number);
  const path = join(folder, `${String(number).padStart(3, '0')}_${kind}.mp4`);
  const expected = KINDS[kind](path, random);
  const count = expected.drawn?.times.length ?? 1;
  const minFrames = 1 + random.integer(Math.min(count, 4));
  const sampling: Sampling = {
    minFrames,
    maxFrames: minFrames + random.integer(12),
    // No video's length is halfway between two multiples of these intervals, so rounding errors decide nothing.
    interval: random.pick([0.0513, 0.2037, 0.5171, 2.0393]),
    segments: count > 12 && random.integer(3) === 0 ? [5, count - 5] : null,
  };
  return { number, kind, path, expected, sampling };
}

/** Reads the file of a case. An error that is not a DataError is a defect, and is raised. */
export async function readOddVideo(one: OddCase): Promise<OddResult> {
  const where = `odd.json:sample ${one.number + 1}`;
  const { drawn, told, untold = false } = one.expected;
  try {
    const clip = await readClip(one.path, one.sampling, where);
    const wrong = drawn === null ? `${clip.frames.length} frames come of it` : unlike(clip, drawn, one.sampling);
    return { ...one, message: null, wrong: untold ? null : wrong, untold: untold && wrong !== null };
  } catch (error) {
    if (!(error instanceof DataError)) throw error;
    const message = error.toText();
    const wrong = told === null ? 'is refused' : unclear(error, told, one.path, where);
    return { ...one, message, wrong, untold: false };
  }
}

/** Why a message is not useful to a person; null if it is. */
function unclear(error: DataError, told: RegExp, path: string, where: string): string | null {
  const { message } = error;
  if (error.where !== where) return `names ${error.where ?? 'no place'}`;
  if (!message.includes(path)) return 'does not name the file';
  if (error.next === undefined) return 'does not say what to do';
  if (message.includes('\n')) return 'has more than one line';
  if (message.length > path.length + 160) return 'is long';
  if (/internal|0x[0-9a-f]{6}|\bundefined\b|NaN|[^\x20-\x7e]/.test(message)) return 'is not for a person';
  const rest = message.replace(path, '');
  return told.test(rest) ? null : `says something else than ${told.source}`;
}

/** How a clip differs from the drawn frames; null if it does not. */
function unlike({ frames, times, seconds }: Clip, drawn: Drawn, sampling: Sampling): string | null {
  const { times: all, last, first, turn } = drawn;
  const sideways = turn === 90 || turn === 270;
  const size = sideways ? `${drawn.height}x${drawn.width}` : `${drawn.width}x${drawn.height}`;
  const sizes = new Set(frames.map(({ width, height }) => `${width}x${height}`));
  if (sizes.size !== 1 || !sizes.has(size)) return `frames are of ${[...sizes].join(', ')}, drawn ${size}`;
  const codes = frames.map((frame) => frameShown(frame) - first);
  const late = codes.findIndex((code, i) => Math.abs((all[code] ?? Infinity) - times[i]) > TICK);
  if (late >= 0) return `at ${times[late]} s it shows frame ${codes[late]}, which stands at ${all[codes[late]]} s`;
  const shortest = all[all.length - 1] + (last ?? 0);
  if (seconds < shortest - 2 * TICK || seconds > shortest + (last === null ? 5 : 2 * TICK)) {
    return `lasts ${seconds} s, drawn ${shortest} s`;
  }
  const wanted = segmentsOf(drawn, sampling, seconds).map((segment) => seenIn(all, segment));
  const found = wanted.flatMap((frames) => frames).length === codes.length;
  if (!found) return `shows ${codes.length} frames, wanted ${wanted.flat().length}`;
  const others = wanted.flat().findIndex((allowed, i) => !allowed.includes(codes[i]));
  if (others >= 0) {
    return `shows frames ${codes.join(' ')}, wanted ${wanted
      .flat()
      .map((allowed) => allowed.join('|'))
      .join(' ')}`;
  }
  const corner = turn === null ? 'upper left' : CORNERS[turn];
  const isSeen = Math.min(drawn.width, drawn.height) >= 16;
  if (isSeen && frames.some((frame) => whiteCorner(frame) !== corner)) return `is turned: white is not ${corner}`;
  return null;
}

const CORNERS = { 90: 'upper right', 180: 'lower right', 270: 'lower left', mirrored: 'upper right' } as const;

interface Segment {
  readonly from: number;
  readonly to: number;
  readonly shown: number;
}

/** The segments of a video, and the number of frames shown of each, as in docs/guide/video.md: n = round(d / interval), within the limits. */
function segmentsOf(
  { times, last }: Drawn,
  { segments, minFrames, maxFrames, interval }: Sampling,
  seconds: number,
): Segment[] {
  let from = 0;
  return (segments ?? [times.length]).map((count) => {
    const to = from + count - 1;
    // The duration of the last frame is the only value taken from the file itself.
    const end = times[to + 1] ?? (last === null ? seconds : times[to] + last);
    const wanted = Math.round((end - times[from]) / interval);
    const shown = Math.min(Math.max(wanted, minFrames), maxFrames, count);
    const segment = { from, to, shown };
    from = to + 1;
    return segment;
  });
}

/** The frames that may be visible at each of the times, which are spread evenly from the first frame to the last. */
function seenIn(times: readonly number[], { from, to, shown }: Segment): number[][] {
  const steady = isSteady(times.slice(from, to + 1));
  return Array.from({ length: shown }, (_, i) => {
    if (shown === 1) return [from];
    // The same as numpy.linspace(0, c - 1, n, dtype=int), in integers.
    if (steady) return [from + Math.floor((i * (to - from)) / (shown - 1))];
    const time = times[from] + ((times[to] - times[from]) * i) / (shown - 1);
    const seenAt = (at: number): number => times.findLastIndex((shownFrom, frame) => frame <= to && shownFrom <= at);
    return [...new Set([seenAt(time - TICK / 2), seenAt(time + TICK)])].filter((frame) => frame >= from);
  });
}

function isSteady(times: readonly number[]): boolean {
  const step = (times[times.length - 1] - times[0]) / (times.length - 1);
  return times.every((time, i) => Math.abs(time - times[0] - i * step) < 1e-6);
}

/** Checks all files as one dataset; returns how the list of broken samples differs from the results of reading the files one by one. */
export async function checkOddVideos(folder: string, results: readonly OddResult[]): Promise<string[]> {
  const list = join(folder, 'conversations.json');
  const conversations = [
    { from: 'human', value: '<video> What is it?' },
    { from: 'gpt', value: '<answer>(1)</answer>' },
  ];
  const samples = results.map(({ number, path, sampling: { minFrames, maxFrames, segments } }) => {
    const counts = segments === null ? {} : { frame_cnts: segments, dynamic_sample: true };
    return {
      id: number,
      conversations,
      video: path,
      meta: { min_frames: minFrames, max_frames: maxFrames, ...counts },
    };
  });
  writeFileSync(list, JSON.stringify(samples));
  const { problems } = await checkDataset(list);
  const listed = problems.map(({ where }) => Number(/\d+$/.exec(where ?? '')?.[0]));
  // Only a reader that decodes a damaged frame notices the damage, and the check does not use the case's interval.
  const chance = results.flatMap(({ expected }, i) => (expected.untold ? [i + 1] : []));
  const refused = results.flatMap(({ message }, i) => (message === null ? [] : [i + 1]));
  const missing = refused.filter((sample) => !listed.includes(sample) && !chance.includes(sample));
  const more = listed.filter((sample) => !refused.includes(sample) && !chance.includes(sample));
  return [
    ...missing.map((sample) => `sample ${sample} (${results[sample - 1].kind}) is refused, and not listed`),
    ...more.map((sample) => `sample ${sample} (${results[sample - 1]?.kind}) is listed, and not refused`),
    ...(new Set(listed).size < listed.length ? ['a sample is listed twice'] : []),
  ];
}
