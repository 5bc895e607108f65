/**
 * Logs of one process of one attempt: readable lines in console.log (rank 0 only) and on the terminal, JSON lines in rank_<n>.log. Each line goes to the
 * operating system immediately, so a killed process loses none.
 */
import { closeSync, openSync, readdirSync, rmSync, symlinkSync, writeSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import winston from 'winston';
import { printable, RunError } from '../core/errors.js';
import { diskError, makeFolder } from '../core/files.js';
import { FollowedLog } from '../core/log.js';
import type { RunPaths } from './paths.js';
import { readStatus } from './status.js';

export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

export interface RunLogOptions {
  readonly paths: RunPaths;
  readonly attempt: number;
  readonly rank: number;
  /** Also receives readable lines. Null for no terminal. Only rank 0 has one. */
  readonly terminal: ((line: string) => void) | null;
  /** Minimum level on the terminal and in console.log. The rank's own file has all levels. Default: 'info'. */
  readonly level?: LogLevel;
}

export interface RunLog {
  readonly logger: winston.Logger;
  /** Ends the log and closes its files. */
  close(): Promise<void>;
}

/** Marks a line for the log files only, not for the terminal, because there are many like it. */
export const FILES_ONLY = { in_passing: true } as const;

const PREFIX: Readonly<Record<string, string>> = { error: 'error: ', warn: 'warning: ' };

/** Opens the logs of a process. Raises RunError for a disk error. */
export function openRunLog(options: RunLogOptions): RunLog {
  const { paths, attempt, rank } = options;
  const level = options.level ?? 'info';
  const plain = plainFormat();
  const files = [new LineFile(paths.rankLog(attempt, rank))];
  const transports: winston.transport[] = [
    new winston.transports.Stream({ stream: files[0], level: 'debug', format: jsonFormat(rank, attempt) }),
  ];
  if (rank === 0) {
    const console = new LineFile(paths.consoleLog(attempt));
    files.push(console);
    transports.push(new winston.transports.Stream({ stream: console, level, format: datedFormat() }));
    linkLatest(paths, attempt);
    if (options.terminal !== null) {
      transports.push(new winston.transports.Stream({ stream: new LineSink(options.terminal), level, format: plain }));
    }
  }
  const logger = winston.createLogger({ level: 'debug', transports });
  return {
    logger,
    close: async () => {
      await new Promise<void>((resolve) => {
        logger.once('finish', resolve);
        logger.end();
      });
      for (const file of files) file.closeFile();
    },
  };
}

/** A file for appending lines synchronously. A disk error is reported once and does not end the run. */
class LineFile extends Writable {
  #file: number | null;
  #failed = false;

  constructor(private readonly path: string) {
    super({ decodeStrings: true });
    try {
      makeFolder(join(path, '..'));
      this.#file = openSync(path, 'a');
    } catch (cause) {
      throw diskError(path, cause);
    }
  }

  override _write(chunk: Uint8Array, _encoding: string, done: () => void): void {
    try {
      if (this.#file !== null) writeSync(this.#file, chunk);
    } catch (cause) {
      if (!this.#failed) process.stderr.write(`${diskError(this.path, cause).toText()}\n`);
      this.#failed = true;
    }
    done();
  }

  closeFile(): void {
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }
}

/** Passes lines on as they arrive. */
class LineSink extends Writable {
  constructor(private readonly take: (line: string) => void) {
    super({ decodeStrings: false });
  }

  override _write(chunk: unknown, _encoding: string, done: () => void): void {
    this.take(String(chunk).replace(/\n$/, ''));
    done();
  }
}

/** Links `logs/console.log` and `logs/rank_0.log` to the logs of the latest attempt. */
function linkLatest(paths: RunPaths, attempt: number): void {
  for (const target of [paths.consoleLog(attempt), paths.rankLog(attempt, 0)]) {
    const link = join(paths.logsDir, basename(target));
    try {
      rmSync(link, { force: true });
      symlinkSync(relative(paths.logsDir, target), link);
    } catch (cause) {
      throw diskError(link, cause);
    }
  }
}

/** A readable line with escaped control characters, which may come from a server or a dataset. */
function readable(info: winston.Logform.TransformableInfo): string {
  return printable(`${PREFIX[info.level] ?? ''}${String(info.message)}`);
}

function plainFormat(): winston.Logform.Format {
  const unlessInPassing = winston.format((info) => ('in_passing' in info ? false : info));
  return winston.format.combine(unlessInPassing(), winston.format.printf(readable));
}

function datedFormat(): winston.Logform.Format {
  return winston.format.combine(
    winston.format.timestamp({ format: 'YYYY-MM-DD HH:mm:ss' }),
    winston.format.printf((info) => `${String(info['timestamp'])}  ${readable(info)}`),
  );
}

function jsonFormat(rank: number, attempt: number): winston.Logform.Format {
  return winston.format.combine(
    winston.format.timestamp(),
    winston.format((info) => {
      const entry: winston.Logform.TransformableInfo = { ...info, rank, attempt };
      delete entry['in_passing'];
      return entry;
    })(),
    winston.format.json(),
  );
}

const POLL_MS = 200;
const CHUNK_BYTES = 256 * 1024;

/** The log to read: the readable one (rank null), or a rank's. */
export interface LogChoice {
  readonly rank: number | null;
  /** Null for the latest attempt and all later ones. */
  readonly attempt: number | null;
  /** Number of last lines to start with. Null for all. */
  readonly lines: number | null;
}

export interface FollowOptions extends LogChoice {
  readonly stop: AbortSignal;
  /** Polling interval in milliseconds. */
  readonly pollMs?: number;
}

/** The attempts with logs, in ascending order. */
export function listAttempts(paths: RunPaths): number[] {
  let names: string[];
  try {
    names = readdirSync(paths.logsDir);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw new RunError('cannot list the folder', { where: paths.logsDir, cause });
  }
  return names
    .flatMap((name) => /^attempt_(\d{3,})$/.exec(name)?.[1] ?? [])
    .map(Number)
    .sort((a, b) => a - b);
}

/** The file of a log. */
export function logFile(paths: RunPaths, attempt: number, rank: number | null): string {
  return rank === null ? paths.consoleLog(attempt) : paths.rankLog(attempt, rank);
}

/** The current bytes of a log. Raises RunError with the existing logs if there is none. */
export function* readLog(paths: RunPaths, choice: LogChoice): Generator<Uint8Array> {
  const attempts = listAttempts(paths);
  const attempt = choice.attempt ?? attempts.at(-1) ?? null;
  if (attempt === null) {
    throw new RunError(`run '${paths.runName}' has no logs yet`, {
      where: paths.logsDir,
      next: 'Add -f to wait for it. `editrl ls` shows the state of the run.',
    });
  }
  if (!attempts.includes(attempt)) {
    throw new RunError(`run '${paths.runName}' has no logs of attempt ${attempt}`, {
      where: paths.logsDir,
      next: attempts.length === 0 ? 'There are no logs yet.' : `Attempts with logs: ${attempts.join(', ')}.`,
    });
  }
  const tail = new LogTail(logFile(paths, attempt, choice.rank));
  try {
    if (!tail.open(choice.lines)) throw noSuchLog(paths, attempt, choice.rank);
    yield* tail.read();
  } finally {
    tail.close();
  }
}

/**
 * The bytes of a log as they are written, across attempts, until the run ends. Raises RunError if the requested attempt has ended and has no such log.
 */
export async function* followLog(paths: RunPaths, options: FollowOptions): AsyncGenerator<Uint8Array> {
  let attempt = options.attempt ?? listAttempts(paths).at(-1) ?? null;
  let tail: LogTail | null = null;
  let { lines } = options;
  try {
    while (!options.stop.aborted) {
      // Checks before reading, so that the last lines before the end are still read.
      const over = hasEnded(paths, options.attempt);
      attempt ??= listAttempts(paths).at(-1) ?? null;
      if (attempt !== null) {
        tail ??= new LogTail(logFile(paths, attempt, options.rank));
        if (tail.open(lines)) yield* tail.read();
        const next = options.attempt === null ? listAttempts(paths).find((each) => each > Number(attempt)) : undefined;
        if (next !== undefined) {
          yield* tail.read();
          tail.close();
          tail = null;
          lines = null;
          attempt = next;
          continue;
        }
      }
      if (over) {
        if (tail?.wasOpened !== true) throw noSuchLog(paths, attempt, options.rank);
        return;
      }
      await sleep(options.pollMs ?? POLL_MS, undefined, { signal: options.stop }).catch((cause: unknown) => {
        if (!options.stop.aborted) throw cause;
      });
    }
  } finally {
    tail?.close();
  }
}

/** Whether the log is complete: no process owns the run, or a later attempt has started. */
function hasEnded(paths: RunPaths, attempt: number | null): boolean {
  if (attempt !== null && listAttempts(paths).some((each) => each > attempt)) return true;
  const { state } = readStatus(paths);
  return state !== 'running' && state !== 'waiting' && state !== 'queued';
}

function noSuchLog(paths: RunPaths, attempt: number | null, rank: number | null): RunError {
  const which = rank === null ? 'console.log' : `log of rank ${rank}`;
  const of = attempt === null ? '' : ` in attempt ${attempt}`;
  const there = attempt === null ? [] : logsOf(paths, attempt);
  return new RunError(`run '${paths.runName}' has no ${which}${of}`, {
    where: attempt === null ? paths.logsDir : paths.attemptLogsDir(attempt),
    next: there.length === 0 ? 'There are no log files.' : `Log files: ${there.join(', ')}.`,
  });
}

function logsOf(paths: RunPaths, attempt: number): string[] {
  try {
    return readdirSync(paths.attemptLogsDir(attempt)).sort();
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw new RunError('cannot list the folder', { where: paths.attemptLogsDir(attempt), cause });
  }
}

/** A growing file. If it shrinks or is replaced, it is read again from its start. */
class LogTail {
  readonly #file: FollowedLog;
  #offset = 0;
  #opened = false;

  constructor(path: string) {
    this.#file = new FollowedLog(path);
  }

  get wasOpened(): boolean {
    return this.#opened;
  }

  /** Opens the file if it exists. The first time it starts at the last `lines` lines. */
  open(lines: number | null): boolean {
    if (this.#file.current !== null) return true;
    const found = this.#file.look(0);
    if (found === null) return false;
    this.#offset = this.#opened || lines === null ? 0 : found.log.startOfLast(lines);
    this.#opened = true;
    return true;
  }

  *read(): Generator<Uint8Array> {
    yield* this.#drain();
    if (!this.#file.moved) return;
    // Reads the rest of the file before it was replaced.
    yield* this.#drain();
    this.close();
    if (this.open(null)) yield* this.#drain();
  }

  close(): void {
    this.#file.close();
  }

  *#drain(): Generator<Uint8Array> {
    const log = this.#file.current;
    if (log === null) return;
    if (log.size < this.#offset) this.#offset = 0;
    for (;;) {
      const chunk = log.bytes(this.#offset, this.#offset + CHUNK_BYTES);
      if (chunk.length === 0) return;
      this.#offset += chunk.length;
      yield chunk;
    }
  }
}
