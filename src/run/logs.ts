/**
 * Logs of one process of one attempt: lines for people in console.log (first rank only) and on the terminal, JSON lines in rank_<n>.log. Lines are
 * handed to the operating system at once, so that a killed process loses none.
 */
import { closeSync, openSync, rmSync, symlinkSync, writeSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { Writable } from 'node:stream';
import winston from 'winston';
import { printable } from '../core/errors.js';
import { diskError, makeFolder } from '../core/files.js';
import type { RunPaths } from './paths.js';

export type LogLevel = 'error' | 'warn' | 'info' | 'debug';

export interface RunLogOptions {
  readonly paths: RunPaths;
  readonly attempt: number;
  readonly rank: number;
  /** Receives plain lines besides the files; null for no terminal. Only the first rank has one. */
  readonly terminal: ((line: string) => void) | null;
  /** The least level on the terminal and in console.log; the rank's own file has everything. Default 'info'. */
  readonly level?: LogLevel;
}

export interface RunLog {
  readonly logger: winston.Logger;
  /** Ends the log and closes its files. */
  close(): Promise<void>;
}

/** Marks a line that is one of many of its kind: it goes to the log files but not to a terminal. */
export const FILES_ONLY = { in_passing: true } as const;

const PREFIX: Readonly<Record<string, string>> = { error: 'error: ', warn: 'warning: ' };

/** Opens the logs of a process. Raises RunError when they cannot be made. */
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

/** A file that lines are appended to synchronously. A full disk must not end a run because of its log: it is reported once instead. */
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

/** A line for people; control characters from a server or a dataset are shown, not obeyed by the terminal. */
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
      const said: winston.Logform.TransformableInfo = { ...info, rank, attempt };
      delete said['in_passing'];
      return said;
    })(),
    winston.format.json(),
  );
}
