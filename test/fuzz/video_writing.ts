/** Writes videos with any frame codes, sizes and times. */
import type { RandomStream } from '../../src/core/random.js';
import { drawFrame, ffmpeg, MOST_FRAMES, type Turn } from './video_bytes.js';

/** The drawn frames, identified by their codes, which count from 0. */
export interface Drawn {
  /** The time at which each frame appears, in seconds after the first frame. */
  readonly times: readonly number[];
  /** The duration of the last frame, in seconds; null if the file decides it. */
  readonly last: number | null;
  /** The code of the first frame. */
  readonly first: number;
  readonly width: number;
  readonly height: number;
  readonly turn: Turn | null;
}

/** Splits arguments that are written as one string. */
export const words = (text: string): string[] => text.split(' ').filter((word) => word !== '');

export interface Coding {
  readonly endings: readonly string[];
  readonly args: readonly string[];
  /** Width and height are multiples of this. */
  readonly side?: number;
  readonly least?: number;
  /** The clock cannot be finer than 1/65535 s, and only common rates work. */
  readonly plainRates?: true;
}

export const x264 = (format: string, ...more: string[]): string[] => [
  '-c:v',
  'libx264',
  '-qp',
  '4',
  '-pix_fmt',
  format,
  ...more,
];
const x265 = (format: string): string[] => [
  '-c:v',
  'libx265',
  '-x265-params',
  'qp=4:log-level=none:pools=1',
  '-pix_fmt',
  format,
];
export const vp9 = (format: string): string[] => [
  '-c:v',
  'libvpx-vp9',
  '-crf',
  '4',
  '-b:v',
  '0',
  '-cpu-used',
  '8',
  '-pix_fmt',
  format,
];
const FAMILY = ['mp4', 'mov', 'mkv'];

export const CODINGS: Readonly<Record<string, Coding>> = {
  h264: { endings: FAMILY, args: x264('yuv420p'), side: 2 },
  h264_odd_sides: { endings: FAMILY, args: x264('yuv444p') },
  h264_b_frames: { endings: FAMILY, args: x264('yuv420p', '-bf', '3', '-g', '12'), side: 2 },
  h264_open_groups: {
    endings: FAMILY,
    args: x264('yuv420p', '-bf', '2', '-g', '6', '-x264-params', 'open-gop=1'),
    side: 2,
  },
  h264_10_bit: { endings: FAMILY, args: x264('yuv420p10le'), side: 2 },
  h264_422_10_bit: { endings: FAMILY, args: x264('yuv422p10le'), side: 2 },
  h264_full_range: { endings: FAMILY, args: x264('yuvj420p'), side: 2 },
  h264_grey: { endings: FAMILY, args: x264('gray') },
  h264_interlaced: {
    endings: FAMILY,
    args: x264('yuv420p', '-flags', '+ilme+ildct', '-x264-params', 'tff=1'),
    side: 4,
    least: 16,
  },
  h264_rgb: { endings: FAMILY, args: words('-c:v libx264rgb -qp 0 -pix_fmt rgb24') },
  hevc: { endings: FAMILY, args: x265('yuv420p'), side: 8, least: 32 },
  hevc_10_bit: { endings: FAMILY, args: x265('yuv420p10le'), side: 8, least: 32 },
  mpeg4: { endings: FAMILY, args: words('-c:v mpeg4 -qscale:v 1 -bf 2'), side: 2, plainRates: true },
  mpeg2: {
    endings: ['mkv', 'mov'],
    args: words('-c:v mpeg2video -qscale:v 1'),
    side: 2,
    least: 16,
    plainRates: true,
  },
  vp8: { endings: ['webm', 'mkv'], args: words('-c:v libvpx -crf 4 -b:v 4M -cpu-used 8'), side: 2 },
  vp9: { endings: ['webm', 'mp4', 'mkv'], args: vp9('yuv420p'), side: 2 },
  vp9_10_bit: { endings: ['webm', 'mp4'], args: vp9('yuv420p10le'), side: 2 },
  vp9_alpha: { endings: ['webm'], args: vp9('yuva420p'), side: 2 },
  av1: {
    endings: ['mp4', 'webm', 'mkv'],
    args: words('-c:v libsvtav1 -preset 12 -qp 5'),
    side: 8,
    least: 64,
    plainRates: true,
  },
  mjpeg: { endings: ['mov', 'mkv', 'mp4'], args: words('-c:v mjpeg -qscale:v 1 -pix_fmt yuvj444p') },
  prores: { endings: ['mov', 'mkv'], args: words('-c:v prores_ks -profile:v 3'), side: 16, least: 32 },
  prores_alpha: {
    endings: ['mov'],
    args: words('-c:v prores_ks -profile:v 4 -pix_fmt yuva444p10le'),
    side: 16,
    least: 32,
  },
  png: { endings: ['mov', 'mkv'], args: words('-c:v png -pix_fmt rgba') },
  animation: { endings: ['mov'], args: words('-c:v qtrle -pix_fmt argb'), least: 8 },
  ffv1: { endings: ['mkv'], args: words('-c:v ffv1 -pix_fmt yuv444p') },
  theora: {
    endings: ['mkv'],
    args: words('-c:v libtheora -qscale:v 10 -pix_fmt yuv444p'),
    side: 16,
    least: 32,
    plainRates: true,
  },
};

export const RATES = [
  '1/5',
  '1',
  '5',
  '10',
  '24000/1001',
  '24',
  '25',
  '30000/1001',
  '30',
  '50',
  '60000/1001',
  '120',
  '240',
];
const PLAIN_RATES = ['5', '10', '24', '25', '30', '50', '60'];

/** When frames are shown: at a steady rate, or each at its own time in whole milliseconds. */
type Timing = { readonly rate: string } | { readonly milliseconds: readonly number[] };

export interface Shape {
  readonly timing: Timing;
  readonly frames: number;
  readonly width: number;
  readonly height: number;
}

function secondsPerFrame(rate: string): number {
  const [frames, seconds = 1] = rate.split('/').map(Number);
  return seconds / frames;
}

export function drawnOf({ timing, frames, width, height }: Shape): Drawn {
  const picture = { first: 0, width, height, turn: null };
  if ('milliseconds' in timing) {
    return { ...picture, times: timing.milliseconds.map((time) => time / 1000), last: null };
  }
  const step = secondsPerFrame(timing.rate);
  return { ...picture, times: Array.from({ length: frames }, (_, i) => i * step), last: step };
}

export function shapeFor({ side = 1, least = 2, plainRates }: Coding, random: RandomStream): Shape {
  const frames = 8 + random.integer(MOST_FRAMES - 8);
  const length = (): number =>
    side * Math.ceil(Math.max(least, random.pick([2, 5, 17, 34, 48, 66, 130]) + random.integer(3)) / side);
  const isSteady = plainRates === true || random.integer(3) > 0;
  return {
    timing: isSteady
      ? { rate: random.pick(plainRates ? PLAIN_RATES : RATES) }
      : { milliseconds: unevenTimes(frames, random) },
    frames,
    width: length(),
    height: length(),
  };
}

/** Times in milliseconds whose gaps range from bursts to long pauses. */
function unevenTimes(frames: number, random: RandomStream): number[] {
  let time = 0;
  const gap = (): number => random.pick([5, 17, 40, 100, 333, 2500]) + random.integer(5);
  return Array.from({ length: frames }, (_, i) => (time += i === 0 ? 0 : gap()));
}

export interface Writing {
  /** More inputs after the frames, which are the first input. */
  readonly inputs?: readonly string[];
  readonly filters?: readonly string[];
  readonly outputs?: readonly string[];
}

export function write(
  path: string,
  shape: Shape,
  coding: readonly string[],
  { inputs = [], filters = [], outputs = [] }: Writing = {},
): Drawn {
  const { timing, frames, width, height } = shape;
  const pictures = Array.from({ length: frames }, (_, frame) => drawFrame(frame, width, height));
  const rate = 'rate' in timing ? timing.rate : '1000';
  const times =
    'rate' in timing ? [] : [`setpts='(${timing.milliseconds.map((at, i) => `eq(N,${i})*${at}`).join('+')})/1000/TB'`];
  const graph = [...times, ...filters];
  const raw = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', `${width}x${height}`, '-r', rate, '-i', 'pipe:0'];
  const filtered = graph.length > 0 ? ['-filter:v:0', graph.join(',')] : [];
  ffmpeg(
    [
      ...raw,
      ...inputs,
      ...filtered,
      '-vsync',
      'rate' in timing ? 'passthrough' : 'vfr',
      ...coding,
      '-threads',
      '1',
      ...outputs,
      '-y',
      path,
    ],
    Buffer.concat(pictures),
  );
  return drawnOf(shape);
}
