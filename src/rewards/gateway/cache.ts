/**
 * Replies to deterministic requests, by key, on disk: one JSON-lines file that grows, and is written anew when most of it is outdated.
 * Held in memory as a whole, since a reply is a kilobyte or two. One gateway per folder.
 */
import { join } from 'node:path';
import { z } from 'zod';
import { scanLines } from '../../core/lines.js';
import { FolderLock } from './folder_lock.js';
import { LinesFile, type OnDiskError } from '../../core/lines_file.js';

const entrySchema = z.object({ key: z.string().regex(/^[0-9a-f]{64}$/), body: z.string() });

export interface CacheOptions {
  readonly dir: string;
  readonly maxEntries: number;
  /** Told of what the disk refuses, and where another gateway takes the folder over. */
  readonly onError: OnDiskError;
}

/** Lines of the file for each reply that is kept, beyond which the file is written anew. */
const mostLinesPerEntry = 2;

export class ReplyCache {
  /** Lines that could not be read when the cache was opened: the torn end of a killed gateway, as a rule. */
  readonly unreadable: number;
  /** In the order of last use. */
  readonly #entries: Map<string, string>;
  readonly #file: LinesFile;
  #lock: FolderLock | null = null;
  /** Of the file, about: what a full disk refused is counted too. */
  #lines: number;

  private constructor(
    readonly options: CacheOptions,
    { entries, lines, unreadable }: ReadEntries,
    file: LinesFile,
  ) {
    this.#entries = entries;
    this.#lines = lines;
    this.#file = file;
    this.unreadable = unreadable;
  }

  /** Raises ConfigError where another gateway has the folder, RunError where the disk refuses. */
  static async open(options: CacheOptions): Promise<ReplyCache> {
    const path = join(options.dir, 'replies.jsonl');
    let cache: ReplyCache | null = null;
    const onError = (error: Error): void => options.onError(error, 0);
    const lock = FolderLock.take(options.dir, {
      onLost: (error) => {
        cache?.forgetFolder();
        onError(error);
      },
      onError,
    });
    try {
      const read = readEntries(path, options.maxEntries);
      cache = new ReplyCache(options, read, await LinesFile.open(path, options.onError));
      cache.#lock = lock;
      cache.#compact(cache.size);
      await cache.#file.flush();
      return cache;
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  get size(): number {
    return this.#entries.size;
  }

  /** The body of a reply, as the upstream gave it. */
  get(key: string): string | undefined {
    const body = this.#entries.get(key);
    if (body === undefined) return undefined;
    this.#entries.delete(key);
    this.#entries.set(key, body);
    return body;
  }

  put(key: string, body: string): void {
    if (this.#entries.has(key)) return;
    this.#entries.set(key, body);
    dropOldest(this.#entries, this.options.maxEntries);
    if (this.#lock === null) return;
    this.#file.append(toLine([key, body]));
    this.#lines++;
    this.#compact(this.options.maxEntries);
  }

  /** Goes on in memory only: the folder is another's. */
  forgetFolder(): void {
    this.#lock = null;
  }

  async close(): Promise<void> {
    await this.#file.close();
    this.#lock?.release();
  }

  /** Writes the file anew where it holds too many lines for so many entries. */
  #compact(entries: number): void {
    if (this.#lines <= mostLinesPerEntry * entries) return;
    const kept = [...this.#entries];
    // Counted so even where the disk refuses: it is asked again when as many lines have come once more.
    this.#lines = kept.length;
    this.#file.replace(toLines(kept));
  }
}

function toLine([key, body]: readonly [string, string]): string {
  return JSON.stringify({ key, body });
}

function* toLines(entries: readonly (readonly [string, string])[]): Iterable<string> {
  for (const entry of entries) yield toLine(entry);
}

function dropOldest(entries: Map<string, string>, most: number): void {
  for (const oldest of entries.keys()) {
    if (entries.size <= most) return;
    entries.delete(oldest);
  }
}

interface ReadEntries {
  readonly entries: Map<string, string>;
  readonly lines: number;
  readonly unreadable: number;
}

function readEntries(path: string, maxEntries: number): ReadEntries {
  const entries = new Map<string, string>();
  let lines = 0;
  let unreadable = 0;
  const torn = scanLines(path, (line) => {
    // Where a torn line was ended, an empty one may follow.
    if (line === '') return;
    lines++;
    const entry = readEntry(line);
    if (entry === null) unreadable++;
    else {
      entries.delete(entry.key);
      entries.set(entry.key, entry.body);
      // Many at a time: a map passes all the places of those that it dropped, each time that it is asked for its first.
      if (entries.size >= 2 * maxEntries) dropOldest(entries, maxEntries);
    }
  });
  dropOldest(entries, maxEntries);
  const ends = torn === 0 ? 0 : 1;
  return { entries, lines: lines + ends, unreadable: unreadable + ends };
}

function readEntry(line: string): { readonly key: string; readonly body: string } | null {
  try {
    return entrySchema.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    return null;
  }
}
