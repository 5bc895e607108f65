/**
 * Calls the machine's ffmpeg and ffprobe (Debian: apt install ffmpeg), also to write small videos. npm packages with a
 * binary are years behind its security updates, or download it during installation.
 */
import { execFile, spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import pLimit from 'p-limit';
import { DataError, EngineError, InternalError } from '../../core/errors.js';
import type { RgbImage } from '../../core/images/image.js';

export type Program = 'ffmpeg' | 'ffprobe';

/** The result of a program: its output, and its error messages, one per line. */
export interface ProgramResult {
  readonly ok: boolean;
  readonly out: Buffer;
  readonly complaints: readonly string[];
}

export const FFMPEG_ADVICE = 'Install ffmpeg (Debian, Ubuntu: apt install ffmpeg; macOS: brew install ffmpeg).';

const TIMEOUT_MS = 120_000;
const MAX_BYTES = 2 ** 31 - 1;

/** Limits how many programs run at once, however many videos are requested. */
const limit = pLimit(availableParallelism());

/** Both forms of calling a program. */
const OPTIONS = { timeout: TIMEOUT_MS, maxBuffer: MAX_BYTES, encoding: 'buffer', killSignal: 'SIGKILL' } as const;

/**
 * Calls a program with `input` on its standard input. Raises EngineError if it is not installed, cannot be started or
 * is killed, and DataError, naming `where`, if it takes more than two minutes or writes more than 2 GiB.
 */
export function runProgram(
  program: Program,
  args: readonly string[],
  where: string,
  input: Uint8Array = new Uint8Array(),
): Promise<ProgramResult> {
  return limit(
    () =>
      new Promise((done, fail) => {
        const child = execFile(program, ['-v', 'error', ...args], OPTIONS, (error, out, err) => {
          const failure = error === null ? null : failureOf(program, error, where);
          if (failure === null) done({ ok: error === null, out, complaints: complaintsOf(err) });
          else fail(failure);
        });
        // A program that ends early closes its standard input. Its exit status shows the reason.
        child.stdin?.on('error', () => {});
        child.stdin?.end(input);
      }),
  );
}

/** Like `runProgram`, but blocks this process. For the check of one file before a run. */
export function callNow(program: Program, args: readonly string[], where: string): ProgramResult {
  const { error, signal, status, stdout, stderr } = spawnSync(program, ['-v', 'error', ...args], OPTIONS);
  const ended: Ended | null = error ?? (signal === null ? null : { message: '', signal });
  const failure = ended === null ? null : failureOf(program, ended, where);
  if (failure !== null) throw failure;
  return { ok: status === 0, out: stdout, complaints: complaintsOf(stderr) };
}

function complaintsOf(err: Buffer): string[] {
  return err
    .toString()
    .split('\n')
    .map((line) => line.replace(/^\[[^\]]* @ 0x[0-9a-f]+\] /, '').trim())
    .filter((line) => line !== '');
}

/** The result of a finished program, as far as either kind of call reports it. */
interface Ended {
  readonly message: string;
  readonly code?: string | number | null | undefined;
  readonly syscall?: string | undefined;
  readonly killed?: boolean | undefined;
  readonly signal?: NodeJS.Signals | null | undefined;
}

const TOO_MUCH = ['ERR_CHILD_PROCESS_STDIO_MAXBUFFER', 'ENOBUFS'];

/** The error that prevented a program from working. Null if it ended by itself. */
function failureOf(program: Program, ended: Ended, where: string): DataError | EngineError | null {
  const { code, signal } = ended;
  // The machine lacks it, whatever file was to be read: without a place, messages of several files are one.
  if (code === 'ENOENT') return notInstalled(program);
  if (typeof code === 'string' && TOO_MUCH.includes(code)) {
    return new DataError('the requested frames take more than 2 GiB', { where, next: 'Request fewer frames.' });
  }
  if (code === 'ETIMEDOUT' || ended.killed === true) {
    const next = 'Play it with ffplay: it may be damaged. A long video is read faster in another encoding.';
    return new DataError(`${program} did not get through it within ${TIMEOUT_MS / 1000} s`, { where, next });
  }
  if (ended.syscall?.startsWith('spawn') === true) return notStarted(program, where, ended);
  if (typeof signal !== 'string') return null;
  const next = 'The machine may be out of memory: see its log, and start again with fewer processes.';
  return new EngineError(`${program} was ended by ${signal}`, { where, next });
}

/** The error for a program that cannot be started. The cause is the machine, not the video. */
function notStarted(program: Program, where: string, cause: Ended): EngineError {
  const next = 'The machine allows no further process or file (ulimit -a), or its user may not run the program.';
  return new EngineError(`${program} cannot be started (${cause.message})`, { where, next, cause });
}

/** Whether ffmpeg and ffprobe are installed. */
export function hasFfmpeg(): boolean {
  return missingProgram() === null;
}

/** Raises EngineError without ffmpeg or ffprobe. */
export function requireFfmpeg(): void {
  const missing = missingProgram();
  if (missing !== null) throw notInstalled(missing);
}

function notInstalled(program: Program): EngineError {
  return new EngineError(`${program} was not found`, { next: FFMPEG_ADVICE });
}

function missingProgram(): Program | null {
  const programs: readonly Program[] = ['ffmpeg', 'ffprobe'];
  return programs.find((each) => spawnSync(each, ['-version'], { stdio: 'ignore' }).error !== undefined) ?? null;
}

/** The version of ffmpeg. Null if it is not installed. */
export function ffmpegVersion(): string | null {
  const output = spawnSync('ffmpeg', ['-version'], { encoding: 'utf8' }).stdout as string | null;
  return /^ffmpeg version (\S+)/.exec(output ?? '')?.[1] ?? null;
}

/**
 * Writes clips as `00000.mp4`, … into a folder without such files and returns the names. All frames have the same size with
 * even sides. The codec is H.264, which every player supports. One process writes all clips, because starting one per clip
 * would take longer than the work. Raises EngineError if ffmpeg is not installed, and DataError if it fails.
 */
export async function writeMp4s(
  folder: string,
  clips: readonly (readonly RgbImage[])[],
  framesPerSecond: number,
): Promise<string[]> {
  const frames = clips.flat();
  const [{ width, height }] = frames;
  const ends = clips.map(({ length }) => length).map((_, i, lengths) => sum(lengths.slice(0, i + 1)));
  const raw = ['-f', 'rawvideo', '-pix_fmt', 'rgb24', '-s', `${width}x${height}`, '-r', String(framesPerSecond)];
  // Every frame is a key frame, so a file may begin with any.
  const coding = ['-c:v', 'libx264', '-threads', '1', '-crf', '12', '-g', '1', '-pix_fmt', 'yuv420p'];
  const cuts = ['-f', 'segment', '-segment_frames', ends.join(','), '-reset_timestamps', '1'];
  const form = ['-segment_format', 'mp4', '-fflags', '+bitexact', '-flags', '+bitexact'];
  const place = `file:${join(folder, '%05d.mp4').replaceAll('%', '%%').replace('%%05d', '%05d')}`;
  const pixels = Buffer.concat(frames.map(({ data }) => data));
  const called = await runProgram(
    'ffmpeg',
    [...raw, '-i', 'pipe:0', ...coding, ...cuts, ...form, place],
    folder,
    pixels,
  );
  if (!called.ok) {
    throw new DataError(`ffmpeg cannot write the videos: ${called.complaints.at(-1) ?? 'it gave no reason'}`, {
      where: folder,
    });
  }
  const names = readdirSync(folder).filter((name) => /^\d{5}\.mp4$/.test(name));
  if (names.length !== clips.length) throw new InternalError(`${names.length} videos for ${clips.length} clips`);
  return names.sort();
}

function sum(values: readonly number[]): number {
  return values.reduce((all, one) => all + one, 0);
}
