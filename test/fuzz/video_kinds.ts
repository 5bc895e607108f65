/**
 * Odd video files from a seeded plan, each with the expected result. The frames and times expected follow from what was drawn, not from how the
 * program reads the file.
 */
import { copyFileSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import type { RandomStream } from '../../src/core/random.js';
import { cutOff, ffmpeg, markCut, markTurned, type Turn } from './video_bytes.js';
import {
  CODINGS,
  drawnOf,
  RATES,
  shapeFor,
  vp9,
  words,
  write,
  x264,
  type Coding,
  type Drawn,
  type Shape,
  type Writing,
} from './video_writing.js';

/** The expected result of a file: all drawn frames, one matching message, or either of them if both are right. */
export interface Expected {
  readonly drawn: Drawn | null;
  readonly told: RegExp | null;
  /** Whether the damage is undetectable, since codecs have no checksums; then the images may differ from the drawn ones. */
  readonly untold?: true;
}

/** Makes a file of a kind at a path; the names of files made beside it begin with that path. */
type Make = (path: string, random: RandomStream) => Expected;

const frames = (drawn: Drawn): Expected => ({ drawn, told: null });
const message = (told: RegExp): Expected => ({ drawn: null, told });

const named = (path: string, ending: string): string => path.replace(/[^.]*$/, ending);

/** A codec in one of its containers, at any rate and size. */
const coded =
  (name: string): Make =>
  (path, random) =>
    frames(writeAs(path, CODINGS[name], random));

function writeAs(path: string, coding: Coding, random: RandomStream): Drawn {
  const made = `${path}.made.${random.pick(coding.endings)}`;
  const drawn = write(made, shapeFor(coding, random), coding.args);
  copyFileSync(made, path);
  return drawn;
}

const H264 = CODINGS['h264'];
const SMALL = { frames: 24, width: 48, height: 32 } as const;
const STEADY: Shape = { ...SMALL, timing: { rate: '10' } };
/** A clock whose ticks are milliseconds, for times that are given in milliseconds. */
const MILLISECONDS = words('-video_track_timescale 1000 -f mp4');
const ANY_COMPLAINT = /\S/;
const ENDS_EARLY = /ends early|truncated/;

const more =
  (writing: Writing | ((random: RandomStream) => Writing), coding: readonly string[] = H264.args): Make =>
  (path, random) => {
    const made = named(path, 'made.mp4');
    const drawn = write(
      made,
      shapeFor(H264, random),
      coding,
      typeof writing === 'function' ? writing(random) : writing,
    );
    copyFileSync(made, path);
    return frames(drawn);
  };

const turned =
  (turn: Turn): Make =>
  (path, random) => {
    const drawn = write(
      named(path, 'made.mp4'),
      { ...shapeFor(H264, random), width: 48, height: 32 },
      x264(random.pick(['yuv420p', 'yuv444p'])),
    );
    markTurned(named(path, 'made.mp4'), path, turn);
    return frames({ ...drawn, turn });
  };

/** A file whose edit list shows one section: only frames that begin within it are seen. */
const cut: Make = (path, random) => {
  const step = 40;
  const count = 30;
  const milliseconds = Array.from({ length: count }, (_, i) => i * step);
  const shape: Shape = { ...SMALL, frames: count, timing: { milliseconds } };
  write(path, shape, x264('yuv420p', '-g', String(1 + random.integer(12)), '-bf', random.pick(['0', '2'])), {
    outputs: MILLISECONDS,
  });
  const from = 10 + random.integer(400);
  const length = 300 + random.integer(300);
  markCut(path, from, length);
  const first = Math.ceil(from / step);
  const shown = milliseconds.filter((time) => time >= from && time < from + length);
  return frames({ ...drawnOf(shape), first, times: shown.map((time) => (time - shown[0]) / 1000), last: null });
};

/** The beginning is cut off without re-encoding: frames before the cut are in the file but are not shown. */
const copiedCut: Make = (path, random) => {
  const whole = named(path, 'whole.mp4');
  write(whole, { ...STEADY, frames: 30 }, x264('yuv420p', '-g', '30', '-bf', '0'));
  const first = 3 + random.integer(12);
  ffmpeg(['-ss', String((first - 0.5) / 10), '-i', whole, '-c', 'copy', '-f', 'mp4', '-y', path]);
  return frames({ ...drawnOf(STEADY), first, times: Array.from({ length: 30 - first }, (_, i) => i / 10), last: null });
};

const LAYOUTS: Readonly<Record<string, readonly string[]>> = {
  index_last: ['-f', 'mp4'],
  index_first: words('-f mp4 -movflags faststart'),
  fragments: words('-f mp4 -movflags frag_keyframe+empty_moov'),
  mov: ['-f', 'mov'],
  mkv: ['-f', 'matroska'],
  webm: ['-f', 'webm'],
};

const truncated =
  (layout: string): Make =>
  (path, random) => {
    const whole = named(path, 'whole.mp4');
    const coding = layout === 'webm' ? vp9('yuv420p') : x264('yuv420p', '-g', '6');
    const drawn = write(whole, STEADY, coding, { outputs: LAYOUTS[layout] });
    const size = readFileSync(whole).length;
    const left = random.pick([0.02, 0.1, 0.3, 0.5, 0.7, 0.9, 0.97, 1 - 1 / size, 1 - (1 + random.integer(40)) / size]);
    cutOff(whole, path, left);
    // The cut may have removed only an index after the frames, which is not needed.
    return { drawn: layout === 'index_first' ? null : drawn, told: ENDS_EARLY };
  };

/** Overwrites bytes of the frames. */
const damaged =
  (name: string): Make =>
  (path, random) => {
    const coding = CODINGS[name];
    const shape: Shape = { ...STEADY, width: 96, height: 64 };
    const noise = [`noise=alls=6:allf=t:all_seed=${random.integer(1000)}`];
    const drawn = write(named(path, 'made.mp4'), shape, coding.args, { filters: noise });
    const bytes = readFileSync(named(path, 'made.mp4'));
    const from = bytes.indexOf('mdat') + 4;
    const length = bytes.readUInt32BE(from - 8) - 8;
    const at = from + random.integer(length);
    const span = Math.min(1 + random.integer(400), from + length - at);
    for (let i = 0; i < span; i++) bytes[at + i] = random.integer(256);
    writeFileSync(path, bytes);
    return { drawn, told: ANY_COMPLAINT, untold: true };
  };

/** Changes the four bytes at an offset from a box's name. */
const changed =
  (box: string, offset: number, value: number | string, told: RegExp): Make =>
  (path) => {
    write(path, STEADY, H264.args, { outputs: ['-f', 'mp4'] });
    const bytes = readFileSync(path);
    const at = bytes.indexOf(box) + offset;
    if (typeof value === 'string') bytes.write(value, at, 'latin1');
    else bytes.writeUInt32BE(value, at);
    writeFileSync(path, bytes);
    return message(told);
  };

const holding =
  (content: (random: RandomStream) => Uint8Array | string, told: RegExp): Make =>
  (path, random) => {
    writeFileSync(path, content(random));
    return message(told);
  };

/** A file of another type with a video's name. */
const renamed =
  (args: readonly string[], told: RegExp): Make =>
  (path) => {
    write(path, { ...STEADY, frames: args.includes('-frames:v') ? 1 : 24 }, args);
    return message(told);
  };

const SOUND = words('-f lavfi -i sine=d=2');
const PICTURE = words('-f lavfi -i color=red:s=32x32:d=0.04');
const bytesOf = (length: number, random: RandomStream): Uint8Array =>
  Uint8Array.from({ length }, () => random.integer(256));

const KIND = /is not a supported video/;

export const KINDS: Readonly<Record<string, Make>> = {
  ...Object.fromEntries(Object.keys(CODINGS).map((name) => [name, coded(name)])),
  turned_90: turned(90),
  turned_180: turned(180),
  turned_270: turned(270),
  mirrored: turned('mirrored'),
  long_pixels: more((random) => ({ filters: [`setsar=${random.pick(['2/1', '1/3', '16/11', '10/11'])}`] })),
  matrix_2020: more({ outputs: words('-colorspace bt2020nc -color_primaries bt2020 -color_trc smpte2084') }),
  matrix_601: more({
    outputs: words('-colorspace smpte170m -color_primaries smpte170m -color_trc smpte170m'),
  }),
  starts_late: more((random) => ({ filters: [`setpts=PTS+${random.pick([0.04, 1, 7.5, 3600])}/TB`] })),
  with_sound: more({ inputs: SOUND, outputs: words('-map 0 -map 1 -c:a aac') }),
  sound_first: more({ inputs: SOUND, outputs: words('-map 1 -map 0 -c:a aac') }),
  sound_longer: more({
    inputs: words('-f lavfi -i sine=d=20'),
    outputs: words('-map 0 -map 1 -c:a aac'),
  }),
  with_cover: (path, random) => {
    const coding = words('-c:v:1 libx264 -qp:v:1 4 -pix_fmt:v:1 yuv420p -c:v:0 png -disposition:v:0 attached_pic');
    const shape: Shape = { ...STEADY, timing: { rate: random.pick(RATES) } };
    return frames(write(path, shape, coding, { inputs: PICTURE, outputs: words('-map 1 -map 0 -f mp4') }));
  },
  two_videos: more({ inputs: words('-f lavfi -i color=red:s=32x32:d=2'), outputs: words('-map 0 -map 1') }),
  index_first: more({ outputs: ['-movflags', 'faststart'] }),
  fragments: more({ outputs: words('-movflags frag_keyframe+empty_moov -g 5') }),
  coarse_clock: more((random) => ({ outputs: ['-video_track_timescale', random.pick(['600', '90000', '12800'])] })),
  large: (path) =>
    frames(
      write(path, { ...STEADY, frames: 4, width: 3840, height: 2160 }, x264('yuv420p', '-preset', 'ultrafast'), {
        outputs: ['-f', 'mp4'],
      }),
    ),
  thin: (path) => frames(write(path, { ...STEADY, width: 400, height: 2 }, H264.args, { outputs: ['-f', 'mp4'] })),
  one_frame: (path, random) =>
    frames(
      write(path, { ...STEADY, frames: 1 }, H264.args, {
        outputs: LAYOUTS[random.pick(['index_last', 'fragments', 'mov', 'mkv'])],
      }),
    ),
  two_frames: (path, random) =>
    frames(
      write(path, { ...STEADY, frames: 2 }, H264.args, { outputs: LAYOUTS[random.pick(['index_last', 'mov', 'mkv'])] }),
    ),
  cut,
  cut_copied: copiedCut,
  ...Object.fromEntries(Object.keys(LAYOUTS).map((layout) => [`truncated_${layout}`, truncated(layout)])),
  damaged_h264: damaged('h264'),
  damaged_hevc: damaged('hevc'),
  damaged_vp9: damaged('vp9'),
  damaged_mpeg4: damaged('mpeg4'),
  no_index: changed('moov', 0, 'free', /cannot be decoded/),
  no_settings_of_coding: changed('avcC', 0, 'free', /cannot be decoded/),
  frames_elsewhere: changed('stco', 12, 0x7fffffff, /ends early/),
  sizes_wrong: changed('stsz', 12, 0x7fffffff, /cannot be decoded/),
  picture: renamed(words('-frames:v 1 -c:v png -f image2'), KIND),
  photograph: renamed(words('-frames:v 1 -c:v mjpeg -f image2'), KIND),
  animation_gif: renamed(['-f', 'gif'], KIND),
  avi: renamed(words('-c:v mpeg4 -f avi'), KIND),
  stream_ts: renamed([...H264.args, '-f', 'mpegts'], KIND),
  bare_h264: renamed([...H264.args, '-f', 'h264'], KIND),
  flash: renamed([...H264.args, '-f', 'flv'], KIND),
  ogg: renamed(words('-c:v libtheora -f ogg'), KIND),
  empty: holding(() => '', /is empty/),
  noise: holding((random) => bytesOf(10 + random.integer(50_000), random), KIND),
  zeros: holding((random) => new Uint8Array(random.pick([1, 8, 4096])), KIND),
  words: holding(
    (random) =>
      random.pick([
        'no video\n',
        '<!DOCTYPE html><html>404</html>',
        '{"error": "not found"}',
        'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n',
      ]),
    KIND,
  ),
  playlist: holding(() => '#EXTM3U\n#EXTINF:1,\n/etc/passwd\n#EXT-X-ENDLIST\n', KIND),
  list_of_files: holding(() => "ffconcat version 1.0\nfile '/etc/hostname'\n", KIND),
  sound_alone: (path) => {
    ffmpeg([...SOUND, '-c:a', 'aac', '-f', 'mp4', '-y', path]);
    return message(/no video stream/);
  },
  sound_with_cover: (path) => {
    const streams = words('-map 0 -map 1 -c:a aac -c:v png -disposition:v attached_pic -f mp4 -y');
    ffmpeg([...SOUND, ...PICTURE, ...streams, path]);
    return message(/no video stream/);
  },
  no_frames: (path, random) => {
    write(path, STEADY, H264.args, {
      filters: ['select=0'],
      outputs: LAYOUTS[random.pick(['index_last', 'mov', 'mkv'])],
    });
    return message(/no frame|no video stream|cannot be decoded/);
  },
  folder: (path) => {
    mkdirSync(path);
    return message(/folder/);
  },
  link_to_nothing: (path) => {
    symlinkSync(`${path}.nothing`, path);
    return message(/there is no video/);
  },
  nothing: () => message(/there is no video/),
};
