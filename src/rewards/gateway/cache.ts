/**
 * Replies to deterministic requests, by key, in memory and on disk: one JSON-lines file that grows, and is written anew when most of it is
 * outdated. Both are bounded in entries and in bytes. One gateway per folder.
 */
import { join } from 'node:path';
import { LRUCache } from 'lru-cache';
import { z } from 'zod';
import { renameAside } from '../../core/files.js';
import { scanLines } from '../../core/log/reader.js';
import { LinesFile, type OnDiskError } from '../../core/lines_file.js';
import { GatewayLock } from './file_lock.js';

const entrySchema = z.object({ key: z.string().regex(/^[0-9a-f]{64}$/), body: z.string() });

export interface CacheOptions {
  readonly dir: string;
  readonly maxEntries: number;
  /** Limit on the size of the replies' lines. */
  readonly maxBytes: number;
  /** Called with what the disk refuses, and when another gateway takes the folder over. */
  readonly onError: OnDiskError;
}

/** The file is rewritten once it has this many times the kept lines or bytes. */
const mostOfKept = 2;
/** A reply of a judge has a kilobyte or two; one whose line is longer than this is not kept. */
const longestLine = 2 ** 20;

export class ReplyCache {
  /** What is wrong with the file as it was found, in words; null if it is whole. */
  readonly found: string | null;
  readonly #entries: LRUCache<string, Buffer>;
  readonly #file: LinesFile;
  #lock: GatewayLock | null = null;
  /** Approximate lines and bytes of the file: what a full disk refused is counted too. */
  #lines: number;
  #bytes: number;

  private constructor(
    readonly options: CacheOptions,
    { entries, lines, bytes, found }: ReadEntries,
    file: LinesFile,
  ) {
    this.#entries = entries;
    this.#lines = lines;
    this.#bytes = bytes;
    this.#file = file;
    this.found = found;
  }

  /** Raises ConfigError when another gateway has the folder, RunError when the disk refuses. */
  static async open(options: CacheOptions): Promise<ReplyCache> {
    const path = join(options.dir, 'replies.jsonl');
    let cache: ReplyCache | null = null;
    const onError = (error: Error): void => options.onError(error, 0);
    const { dir } = options;
    const claimed = { name: 'the cache', own: 'a folder of its own', path: dir, lockPath: join(dir, 'gateway.pid') };
    const lock = GatewayLock.take(claimed, {
      onLost: (error) => {
        cache?.forgetFolder();
        onError(error);
      },
      onError,
    });
    try {
      const read = readEntries(path, options);
      cache = new ReplyCache(options, read, await LinesFile.open(path, options.onError));
      cache.#lock = lock;
      cache.#compact(read.found === null ? cache.size : 0, read.entries.calculatedSize);
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
  get(key: string): Buffer | undefined {
    return this.#entries.get(key);
  }

  put(key: string, body: Buffer): void {
    if (body.length > longestLine || this.#entries.has(key)) return;
    const line = toLine([key, body]);
    const size = Buffer.byteLength(line) + 1;
    if (size > longestLine) return;
    this.#entries.set(key, ownCopy(body), { size });
    if (this.#lock === null) return;
    this.#file.append(line);
    this.#lines++;
    this.#bytes += size;
    this.#compact(this.options.maxEntries, this.options.maxBytes);
  }

  /** Continues in memory only: the folder belongs to another gateway. */
  forgetFolder(): void {
    this.#lock = null;
  }

  async close(): Promise<void> {
    await this.#file.close();
    this.#lock?.release();
  }

  /** Rewrites the file if it holds too much for this many entries and bytes. */
  #compact(entries: number, bytes: number): void {
    if (this.#lines <= mostOfKept * entries && this.#bytes <= mostOfKept * bytes) return;
    // The entry used last comes last, as it would have been appended.
    const kept = [...this.#entries.entries()].reverse();
    // Counted like this even if the disk refuses: the next attempt is due after as many further lines.
    this.#lines = kept.length;
    this.#bytes = this.#entries.calculatedSize;
    this.#file.replace(toLines(kept));
  }
}

/** Copies the body: a small buffer may be a slice of a large one, which it would keep in memory. */
function ownCopy(body: Buffer): Buffer {
  const copy = Buffer.allocUnsafeSlow(body.length);
  body.copy(copy);
  return copy;
}

type Entry = readonly [string, Buffer];

function toLine([key, body]: Entry): string {
  return JSON.stringify({ key, body: body.toString('utf8') });
}

function* toLines(entries: readonly Entry[]): Iterable<string> {
  for (const entry of entries) yield toLine(entry);
}

interface ReadEntries extends Pick<ReplyCache, 'found'> {
  readonly entries: LRUCache<string, Buffer>;
  readonly lines: number;
  readonly bytes: number;
}

/**
 * Reads the file line by line, and keeps of it no more than there is room for. Where it holds lines that this version does not know, it
 * is set aside, so that they are not lost; what was half-written when a gateway was killed is left out. Raises RunError where it cannot be read or set aside.
 */
function readEntries(path: string, { maxEntries, maxBytes }: CacheOptions): ReadEntries {
  const entries = new LRUCache<string, Buffer>({ max: maxEntries, maxSize: maxBytes });
  let lines = 0;
  let bytes = 0;
  let broken = 0;
  let unknown = 0;
  const onLine = (line: string, _offset: number, length: number): void => {
    bytes += length + 1;
    // After a torn line was ended, an empty one may follow.
    if (line === '') return;
    lines++;
    const entry = readEntry(line);
    if (entry === 'broken') broken++;
    else if (entry === 'unknown') unknown++;
    else entries.set(entry.key, ownCopy(Buffer.from(entry.body)), { size: length + 1 });
  };
  const torn = scanLines(path, onLine, {
    longest: longestLine,
    onTooLong: (length) => {
      bytes += length + 1;
      lines++;
    },
  });
  if (torn > 0) broken++;
  const aside = unknown === 0 ? null : renameAside(path, 'unknown');
  const found = [
    ...(broken === 0 ? [] : [`${broken} replies in the cache are half-written and are left out`]),
    ...(aside === null ? [] : [`the cache has ${unknown} lines of another version; its file is kept as ${aside}`]),
  ];
  return { entries, lines, bytes: bytes + torn, found: found.length === 0 ? null : found.join('; ') };
}

function readEntry(line: string): z.output<typeof entrySchema> | 'broken' | 'unknown' {
  try {
    return entrySchema.safeParse(JSON.parse(line)).data ?? 'unknown';
  } catch {
    return 'broken';
  }
}
