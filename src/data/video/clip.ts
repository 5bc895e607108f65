/** Frames of a video file, as shown to a policy. */
import { closeSync, fstatSync, openSync, readSync, statSync } from 'node:fs';
import { resolve } from 'node:path';
import { z } from 'zod';
import { DataError } from '../../core/errors.js';
import { type RgbImage, mostImagePixels } from '../../core/images/image.js';
import { type Program, type ProgramResult, callNow, runProgram } from './ffmpeg.js';
import { type Sampling, type Timeline, sampledFrames } from './sampling.js';

/** Frames of a video, in order. */
export interface Clip {
  /** All of one size, upright, in the pixels that the file has. */
  readonly frames: readonly RgbImage[];
  /** When each frame is shown first, in seconds from the video's first frame. */
  readonly times: readonly number[];
  /** Duration of the whole video in seconds. */
  readonly seconds: number;
}

/** Kinds of container: others, such as playlists, may lead ffmpeg to other files and hosts. */
const KINDS = 'mov,mp4,m4a,3gp,3g2,mj2,matroska,webm';
const OPENED = ['-threads', '1', '-protocol_whitelist', 'file,pipe', '-format_whitelist', KINDS];
/**
 * Colors that are the same on every processor: by default the conversion takes shortcuts that differ between kinds of
 * processors.
 */
const COLOURS = 'scale=flags=bicubic+accurate_rnd+bitexact,format=rgb24';
const FETCH_AGAIN = 'Fetch or encode the video again, or leave this sample out.';

const probed = z.object({
  streams: z.array(
    z.object({
      codec_name: z.string().optional(),
      width: z.number(),
      height: z.number(),
      nb_frames: z.coerce.number().optional(),
      time_base: z
        .string()
        .regex(/^\d+\/\d+$/)
        .transform((tick) => Number(tick.split('/')[0]) / Number(tick.split('/')[1]))
        .optional(),
      duration: z.coerce.number().optional(),
    }),
  ),
  packets: z
    .array(
      z.object({
        pts_time: z.coerce.number().optional(),
        duration_time: z.coerce.number().optional(),
        flags: z.string().default(''),
      }),
    )
    .default([]),
});

const framed = z.object({
  frames: z
    .array(
      z.object({
        best_effort_timestamp_time: z.coerce.number().optional(),
        duration_time: z.coerce.number().optional(),
        pkt_duration_time: z.coerce.number().optional(),
      }),
    )
    .default([]),
});

/** A reading yields calls of ffmpeg, one after another, and receives their results. */
type Reading<T> = Generator<readonly [program: Program, args: readonly string[]], T, ProgramResult>;

/**
 * Reads the frames that `sampling` selects. Raises DataError, naming `where`, for a file that is missing, is not a
 * video, ends early, is damaged, or has too few frames, and EngineError without ffmpeg.
 */
export async function readClip(path: string, sampling: Sampling, where: string): Promise<Clip> {
  const reading = clip(path, sampling, where);
  let next = reading.next();
  while (!next.done) next = reading.next(await runProgram(...next.value, where));
  return next.value;
}

/** Like `readClip`, but blocks this process. For the check of one video before a run. */
export function readClipNow(path: string, sampling: Sampling, where: string): Clip {
  const reading = clip(path, sampling, where);
  let next = reading.next();
  while (!next.done) next = reading.next(callNow(...next.value, where));
  return next.value;
}

function* clip(path: string, sampling: Sampling, where: string): Reading<Clip> {
  const timeline = yield* timelineOf(path, where);
  const shown = sampledFrames(timeline, sampling);
  if ('misfit' in shown) {
    throw new DataError(`${path}: ${shown.misfit}`, {
      where,
      next: 'Correct the counts of this sample, lower min_frames, or leave it out.',
    });
  }
  const [start] = timeline.times;
  return {
    frames: yield* decodeFrames(path, shown, where),
    times: shown.map((frame) => exactTime(timeline.times[frame] - start, timeline.tick)),
    seconds: timeline.end - start,
  };
}

/** A time without the rounding of ffprobe, which prints six decimals: a whole number of ticks. */
function exactTime(seconds: number, tick: number): number {
  if (tick === 0) return seconds;
  const perSecond = 1 / tick;
  const whole = Math.round(perSecond);
  // A division rounds once. Most files have a whole number of ticks in a second.
  return Math.abs(perSecond - whole) < 1e-6 ? Math.round(seconds * whole) / whole : Math.round(seconds / tick) * tick;
}

/** The times of a video's frames, from its packets alone. */
function* timelineOf(path: string, where: string): Reading<Timeline> {
  requireFile(path, where);
  const entries = 'packet=pts_time,duration_time,flags:stream=codec_name,width,height,nb_frames,time_base,duration';
  const args = [...OPENED, '-select_streams', 'V:0', '-show_entries', entries, '-of', 'json', fileUrl(path)];
  const called = yield ['ffprobe', args];
  refuseDamage(called, path, where);
  const { streams, packets } = probed.parse(JSON.parse(called.out.toString()));
  if (streams.length === 0) throw damaged('it has no video stream', path, where);
  const [{ codec_name: codec, width, height, nb_frames: listed, time_base: tick = 0, duration = 0 }] = streams;
  if (width * height > mostImagePixels) {
    throw damaged(`its frames of ${width}x${height} have more than ${mostImagePixels} pixels`, path, where);
  }
  if (listed !== undefined && packets.length < listed) {
    // An edit list hides frames that are there.
    const held = yield* storedPackets(path, where);
    if (held < listed) throw damaged(`it ends early: it lists ${listed} frames, but has ${held}`, path, where);
  }
  // Frames outside an edit list are decoded, but not shown.
  const visible =
    codec === WITH_HIDDEN_PACKETS
      ? yield* decodedFrames(path, where)
      : packets.filter(({ flags }) => !flags.includes('D'));
  if (visible.length === 0) throw damaged('it has no frame', path, where);
  const spans = visible.map(({ pts_time: from, duration_time: lasts = 0 }) => {
    if (from === undefined) throw damaged('its frames have no times', path, where);
    return { from, to: from + lasts };
  });
  const times = spans.map(({ from }) => from).sort((a, b) => a - b);
  // Often only the whole duration gives that of the last frame.
  const end = spans.reduce((latest, { to }) => Math.max(latest, to), times[0] + duration);
  return { times, end, tick };
}

/** VP8 has frames that are never shown. Their packets are no different from others. Only decoding identifies them. */
const WITH_HIDDEN_PACKETS = 'vp8';

/** The times of a decoder's frames. */
function* decodedFrames(path: string, where: string): Reading<z.output<typeof probed>['packets']> {
  const entries = 'frame=best_effort_timestamp_time,duration_time,pkt_duration_time';
  const args = [...OPENED, '-select_streams', 'V:0', '-show_entries', entries, '-of', 'json', fileUrl(path)];
  const called = yield ['ffprobe', args];
  refuseDamage(called, path, where);
  return framed.parse(JSON.parse(called.out.toString())).frames.map((frame) => ({
    pts_time: frame.best_effort_timestamp_time,
    // Older versions give the duration of its packet.
    duration_time: frame.duration_time ?? frame.pkt_duration_time,
    flags: '',
  }));
}

/** The number of frames in a file, including those outside its edit list. */
function* storedPackets(path: string, where: string): Reading<number> {
  const entries = ['-show_entries', 'packet=flags:stream=width,height'];
  const args = [...OPENED, '-ignore_editlist', '1', '-select_streams', 'V:0', ...entries, '-of', 'json', fileUrl(path)];
  const called = yield ['ffprobe', args];
  refuseDamage(called, path, where);
  return probed.parse(JSON.parse(called.out.toString())).packets.length;
}

/** The frames at these places, which never fall, in the order of showing. A place may occur several times. */
function* decodeFrames(path: string, places: readonly number[], where: string): Reading<RgbImage[]> {
  const distinct = [...new Set(places)];
  const select = distinct.map((place) => `eq(n,${place})`).join('+');
  const args = [
    ...['-nostdin', ...OPENED, '-i', fileUrl(path), '-map', '0:V:0', '-frames:v', String(distinct.length)],
    // Evenly spaced at the rate of the output, the selected frames are written once each. Otherwise ffmpeg may write a
    // frame again in the next one's place, if a file does not give its start.
    ...['-vf', `select='${select}',setpts=N*1000/TB,${COLOURS}`, '-r', '1/1000'],
    ...['-f', 'image2pipe', '-c:v', 'ppm', '-'],
  ];
  const called = yield ['ffmpeg', args];
  refuseDamage(called, path, where);
  const frames = parsePpm(called.out);
  if (frames.length !== distinct.length) {
    throw damaged(`only ${frames.length} of the ${distinct.length} requested frames can be decoded`, path, where);
  }
  return places.map((place) => frames[distinct.indexOf(place)]);
}

function requireFile(path: string, where: string): void {
  const found = statSync(path, { throwIfNoEntry: false });
  if (found?.isFile() === true) return;
  const what = found === undefined ? `there is no video ${path}` : `${path}: it is a folder or a device, not a file`;
  throw new DataError(what, { where, next: 'Correct its path, or leave this sample out.' });
}

/** A name that ffmpeg does not mistake for an option or a protocol. */
function fileUrl(path: string): string {
  return `file:${resolve(path)}`;
}

/** A problem of the file's form takes precedence over other problems. */
function damaged(what: string, path: string, where: string): DataError {
  return new DataError(`${path}: ${brokenForm(path) ?? what}`, { where, next: FETCH_AGAIN });
}

/** Damage that ffmpeg's own words do not explain, by their contents. */
const DAMAGE: readonly (readonly [RegExp, string])[] = [
  [/moov atom not found/, 'its index is missing, as in a truncated file'],
  [/partial file|File ended prematurely|Truncating packet/, 'it ends early'],
  [
    /not in allowed list|Format not on whitelist|not on whitelist/i,
    'it is not a supported video; allowed: .mp4, .mov, .mkv, .webm',
  ],
];

/**
 * Errors that ffmpeg also reports for valid videos: references that a cut or an encoder leaves out, and chapters
 * elsewhere. They change no image.
 */
const HARMLESS: readonly RegExp[] = [
  /^mmco: unref short failure/,
  /^co located POCs unavailable/,
  /^Referenced QT chapter track not found/,
];

/** Frames decoded in spite of damage differ from the recorded ones, so any other complaint is an error. */
function refuseDamage({ ok, complaints: all }: ProgramResult, path: string, where: string): void {
  const serious = all.filter((line) => !HARMLESS.some((pattern) => pattern.test(line)));
  if (ok && serious.length === 0) return;
  const complaints = serious.length > 0 ? serious : all;
  const known = DAMAGE.find(([pattern]) => complaints.some((line) => pattern.test(line)));
  const own = complaints[0]?.replace(fileUrl(path), 'it').replace(/^it: /, '') ?? 'ffmpeg failed without a word';
  throw damaged(known?.[1] ?? `it cannot be decoded (${own})`, path, where);
}

/** Images of binary PPM (P6, 255), one after the other. */
function parsePpm(bytes: Buffer): RgbImage[] {
  const images: RgbImage[] = [];
  for (let at = 0; at < bytes.length;) {
    const header = /^P6\s(\d+)\s(\d+)\s255\s/.exec(bytes.toString('latin1', at, at + 40));
    if (header === null) break;
    const [width, height] = [Number(header[1]), Number(header[2])];
    const start = at + header[0].length;
    at = start + width * height * 3;
    if (at > bytes.length) break;
    images.push({ width, height, data: new Uint8Array(bytes.subarray(start, at)) });
  }
  return images;
}

/** The possible beginnings of .mp4 and .mov files, and of .mkv and .webm files. */
const BOXES: readonly string[] = [
  'ftyp',
  'styp',
  'moov',
  'moof',
  'mdat',
  'free',
  'skip',
  'wide',
  'pnot',
  'sidx',
  'uuid',
];
const EBML = 0x1a45dfa3;
/** The number of bytes of other files that a message shows, if they are words. */
const SHOWN_BYTES = 24;

/** The problem of an invalid video file, as the rest of a message. Null for a valid form. */
export function brokenForm(path: string): string | null {
  const file = openSync(path, 'r');
  try {
    const { size } = fstatSync(file);
    if (size === 0) return 'it is empty';
    const first = Buffer.alloc(SHOWN_BYTES);
    const start = first.subarray(0, readSync(file, first, 0, SHOWN_BYTES, 0));
    if (start.length >= 4 && start.readUInt32BE() === EBML) return null;
    if (!BOXES.includes(start.toString('latin1', 4, 8))) return strange(start);
    const missing = endOfBoxes(file, size) - size;
    return missing > 0 ? `it ends early: at least ${missing} byte${missing === 1 ? ' is' : 's are'} missing` : null;
  } finally {
    closeSync(file);
  }
}

function strange(start: Buffer): string {
  const [words] = start.toString('latin1').split(/[\r\n]/);
  const shown = /^[\x20-\x7e]{4,}$/.test(words) ? ` (it begins with '${words}')` : '';
  return `it is not a supported video${shown}; allowed: .mp4, .mov, .mkv, .webm`;
}

/** The end that the last of the consecutive boxes gives (ISO/IEC 14496-12). */
function endOfBoxes(file: number, size: number): number {
  const header = Buffer.alloc(16);
  let at = 0;
  while (at < size) {
    const read = readSync(file, header, 0, 16, at);
    if (read < 8) return at + 8;
    const short = header.readUInt32BE();
    // 0: to the end of the file. 1: the length follows the name.
    if (short === 0 || (short === 1 && read < 16)) return size;
    const length = short === 1 ? Number(header.readBigUInt64BE(8)) : short;
    if (length < 8) return size;
    at += length;
  }
  return at;
}
