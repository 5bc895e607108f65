/** Writes a line for every exchange: who asked whom for what, and the result. Images are recorded as hashes; keys never. */
import { realpathSync } from 'node:fs';
import type { ChatBody } from './chat_body.js';
import type { Completion } from './exchange.js';
import { LinesFile, type OnDiskError } from '../../core/lines_file.js';
import { GatewayLock } from './file_lock.js';

/** How one exchange went. */
export interface ExchangeSummary {
  readonly upstream: string | null;
  readonly cache: 'hit' | 'miss' | null;
  /** Requests to upstreams. */
  readonly attempts: number;
  readonly waitedMs: number;
  readonly latencyMs: number;
  readonly status: number;
  /** The kind of error; null where there is none. */
  readonly error: string | null;
  /** What the error said. */
  readonly found: string;
  readonly completion: Completion | null;
}

export interface RecordsOptions {
  readonly path: string;
  /** As `LinesFile` has it. */
  readonly rotateBytes: number;
  /** Called with what the disk refuses, and when another gateway takes the file over. */
  readonly onError: OnDiskError;
}

export class ExchangeRecords {
  #lost = false;

  private constructor(
    private readonly file: LinesFile,
    private readonly lock: GatewayLock,
  ) {}

  /** Raises ConfigError where another gateway has the file, RunError where the disk refuses. */
  static async open({ path, rotateBytes, onError }: RecordsOptions): Promise<ExchangeRecords> {
    let records: ExchangeRecords | null = null;
    const claimed = {
      name: 'the records file',
      own: 'a records file of its own',
      path,
      lockPath: `${realPath(path)}.lock`,
    };
    const lock = GatewayLock.take(claimed, {
      onLost: (error) => {
        if (records !== null) records.#lost = true;
        onError(error, 0);
      },
      onError: (error) => onError(error, 0),
    });
    try {
      return (records = new ExchangeRecords(await LinesFile.open(path, onError, { rotateBytes }), lock));
    } catch (error) {
      lock.release();
      throw error;
    }
  }

  write({ run, chat }: { readonly run: string; readonly chat: ChatBody }, course: ExchangeSummary): void {
    if (this.#lost) return;
    const { completion } = course;
    this.file.append(
      JSON.stringify({
        time: new Date().toISOString(),
        run,
        model: chat.model,
        key: chat.key(),
        prompt: chat.promptHash(),
        images: chat.images(),
        upstream: course.upstream,
        cache: course.cache,
        attempts: course.attempts,
        waited_ms: Math.round(course.waitedMs),
        latency_ms: Math.round(course.latencyMs),
        status: course.status,
        error: course.error,
        ...(course.error === null ? {} : { found: course.found }),
        finish_reason: completion?.finishReason ?? null,
        prompt_tokens: completion?.promptTokens ?? null,
        completion_tokens: completion?.completionTokens ?? null,
        text: completion?.text ?? null,
      }),
    );
  }

  async close(): Promise<void> {
    await this.file.close();
    this.lock.release();
  }
}

/** Two names may refer to the same file. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path; // It does not exist yet.
  }
}
