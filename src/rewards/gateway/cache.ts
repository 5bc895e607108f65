/**
 * Replies to deterministic requests, by key, on disk: one JSON-lines file that grows, and is written anew when most of it is outdated.
 * Held in memory as a whole, since a reply is a kilobyte or two. One gateway per folder.
 */
import { closeSync, existsSync, mkdirSync, openSync, readFileSync, rmSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { ConfigError } from '../../core/errors.js';
import { diskError, writeFileAtomic } from '../../core/files.js';
import { LinesFile } from './lines_file.js';

const entrySchema = z.object({ key: z.string().regex(/^[0-9a-f]{64}$/), body: z.string() });

export interface CacheOptions {
  readonly dir: string;
  readonly maxEntries: number;
  readonly onError: (error: Error, lostLines: number) => void;
}

export class ReplyCache {
  /** In the order of last use. */
  readonly #entries: Map<string, string>;

  private constructor(
    readonly options: CacheOptions,
    readonly lock: string,
    entries: Map<string, string>,
    readonly file: LinesFile,
    /** Lines that could not be read when the cache was opened: the torn end of a killed gateway, as a rule. */
    readonly unreadable: number,
  ) {
    this.#entries = entries;
  }

  /** Raises ConfigError where another gateway has the folder, RunError where the disk refuses. */
  static async open(options: CacheOptions): Promise<ReplyCache> {
    const path = join(options.dir, 'replies.jsonl');
    const lock = takeLock(options.dir);
    try {
      const { entries, lines, unreadable } = readEntries(path, options.maxEntries);
      if (lines > 2 * entries.size) {
        const kept = [...entries].map(([key, body]) => `${JSON.stringify({ key, body })}\n`);
        writeFileAtomic(path, kept.join(''));
      }
      return new ReplyCache(options, lock, entries, await LinesFile.open(path, options.onError), unreadable);
    } catch (error) {
      rmSync(lock, { force: true });
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
    this.file.append(JSON.stringify({ key, body }));
  }

  async close(): Promise<void> {
    await this.file.close();
    rmSync(this.lock, { force: true });
  }
}

function dropOldest(entries: Map<string, string>, most: number): void {
  for (const oldest of entries.keys()) {
    if (entries.size <= most) return;
    entries.delete(oldest);
  }
}

function readEntries(path: string, maxEntries: number) {
  const entries = new Map<string, string>();
  const text = existsSync(path) ? readFileSync(path, 'utf8') : '';
  const lines = text.split('\n').filter((line) => line !== '');
  let unreadable = 0;
  for (const line of lines) {
    const entry = readEntry(line);
    if (entry === null) unreadable++;
    else {
      entries.delete(entry.key);
      entries.set(entry.key, entry.body);
      dropOldest(entries, maxEntries);
    }
  }
  return { entries, lines: lines.length, unreadable };
}

function readEntry(line: string): { readonly key: string; readonly body: string } | null {
  try {
    return entrySchema.safeParse(JSON.parse(line)).data ?? null;
  } catch {
    return null;
  }
}

/** Two gateways that write one file anew would lose what the other appended. */
function takeLock(dir: string): string {
  const path = join(dir, 'gateway.pid');
  for (let attempt = 0; ; attempt++) {
    try {
      mkdirSync(dir, { recursive: true });
      const file = openSync(path, 'wx');
      writeSync(file, `${process.pid}\n`);
      closeSync(file);
      return path;
    } catch (cause) {
      if ((cause as NodeJS.ErrnoException).code !== 'EEXIST' || attempt > 0) throw diskError(path, cause);
      const owner = Number(readFileSync(path, 'utf8'));
      if (isAlive(owner)) {
        throw new ConfigError(`the cache is in use by process ${owner}`, {
          where: dir,
          next: `Give each gateway a folder of its own, or delete ${path} if that process is no gateway.`,
        });
      }
      rmSync(path, { force: true });
    }
  }
}

function isAlive(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0 || pid === process.pid) return pid === process.pid;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}
