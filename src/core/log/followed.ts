/** Following a file of lines by its path, so that another file in its place, or one that was cut, is told apart. */
import { fstatSync, statSync, type Stats } from 'node:fs';
import { RunError } from '../errors.js';
import { LogReader } from './reader.js';

/** What the path leads to now. */
export interface FollowedFile {
  readonly log: LogReader;
  /** It is another file than at the last look, or the first one. */
  readonly replaced: boolean;
  /** It is the same file, and has fewer bytes than were read of it. */
  readonly shorter: boolean;
}

/** How many bytes were read is the caller's to keep. */
export class FollowedLog {
  #log: LogReader | null = null;
  #identity = '';

  constructor(readonly path: string) {}

  /** The file that is open, which may have been moved away from the path. */
  get current(): LogReader | null {
    return this.#log;
  }

  /** Whether the path leads to another file than the one that is open. False where it leads to none. Raises RunError. */
  get moved(): boolean {
    const there = statOf(this.path);
    if (there === null || this.#log === null) return false;
    const { ino, dev } = fstatSync(this.#log.file);
    return ino !== there.ino || dev !== there.dev;
  }

  /** Opens what the path leads to, unless it is open; null where there is nothing. Raises RunError. @param seen the bytes that were read. */
  look(seen: number): FollowedFile | null {
    if (statOf(this.path) === null) {
      this.close();
      this.#identity = '';
      return null;
    }
    if (this.moved) this.close();
    this.#log ??= LogReader.open(this.path);
    if (this.#log === null) return null;
    const { ino, dev, birthtimeMs, size } = fstatSync(this.#log.file);
    // After `close` a file's number may be another one's; while it is open it is its own.
    const identity = `${dev} ${ino} ${birthtimeMs}`;
    const replaced = identity !== this.#identity;
    this.#identity = identity;
    return { log: this.#log, replaced, shorter: !replaced && size < seen };
  }

  /** Lets go of the file; the next look still tells whether it is the same one. */
  close(): void {
    this.#log?.close();
    this.#log = null;
  }
}

function statOf(path: string): Stats | null {
  try {
    return statSync(path, { throwIfNoEntry: false }) ?? null;
  } catch (cause) {
    throw new RunError('cannot read the file', { where: path, cause });
  }
}
