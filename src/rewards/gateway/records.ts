/** A line for every exchange: who asked what of whom, and what came of it. Images stand as hashes; keys stand nowhere. */
import type { ChatBody } from './chat_body.js';
import type { Completion } from './exchange.js';
import type { LinesFile } from '../../core/lines_file.js';

/** How one exchange went. */
export interface ExchangeCourse {
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

export class ExchangeRecords {
  constructor(readonly file: LinesFile) {}

  write({ run, chat }: { readonly run: string; readonly chat: ChatBody }, course: ExchangeCourse): void {
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

  close(): Promise<void> {
    return this.file.close();
  }
}
