/** Streams of server-sent events. A slow reader is disconnected. It then opens another stream and requests everything again. */
import type { ServerResponse } from 'node:http';
import { EditrlError, printable } from '../core/errors.js';
import type { Call } from '../core/http/server.js';
import { followLog, type LogChoice } from '../run/logs.js';
import type { RunPaths } from '../run/paths.js';
import { GUARD_HEADERS } from './page_files.js';
import type { WireLog } from './wire.js';

/** Interval of comment lines, so that both ends notice a lost connection. */
const PING_INTERVAL_MS = 15_000;
/** Maximum amount of queued data per reader, in bytes. */
const MAX_WAITING_BYTES = 4 * 1024 * 1024;

/** One open stream of events. */
export class EventStream<E> {
  readonly #response: ServerResponse;
  readonly #ping: NodeJS.Timeout;
  /** Aborted when either side ends the stream. */
  readonly #over = new AbortController();

  constructor({ response, gone }: Pick<Call, 'response' | 'gone'>) {
    this.#response = response;
    response.writeHead(200, {
      ...GUARD_HEADERS,
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
    });
    response.write(': open\n\n');
    this.#ping = setInterval(() => this.#write(': still here\n\n'), PING_INTERVAL_MS);
    this.#ping.unref();
    gone.addEventListener('abort', () => this.close());
  }

  get over(): AbortSignal {
    return this.#over.signal;
  }

  /** Whether sent data is still queued for the reader. */
  get behind(): boolean {
    return this.#response.writableNeedDrain;
  }

  send(event: E): void {
    this.#write(`data: ${JSON.stringify(event)}\n\n`);
  }

  /** Does nothing if the stream is already closed. */
  close(): void {
    if (this.#over.signal.aborted) return;
    clearInterval(this.#ping);
    this.#over.abort();
    this.#response.end();
  }

  #write(text: string): void {
    if (this.#over.signal.aborted) return;
    this.#response.write(text);
    if (this.#response.writableLength <= MAX_WAITING_BYTES) return;
    this.#response.destroy();
    this.close();
  }
}

/** Streams that all receive the same events. */
export class Broadcast<E> {
  readonly #streams = new Set<EventStream<E>>();

  open(call: Call): void {
    const stream = new EventStream<E>(call);
    this.#streams.add(stream);
    stream.over.addEventListener('abort', () => this.#streams.delete(stream));
  }

  send(event: E): void {
    for (const stream of this.#streams) stream.send(event);
  }

  close(): void {
    for (const stream of [...this.#streams]) stream.close();
  }
}

const POLL_MS = 400;
const DRAIN_MS = 50;

/** Sends the content of a log and follows it as it grows. */
export async function streamLog(call: Call, paths: RunPaths, choice: LogChoice): Promise<void> {
  const stream = new EventStream<WireLog>(call);
  const decoder = new TextDecoder();
  try {
    for await (const bytes of followLog(paths, { ...choice, stop: stream.over, pollMs: POLL_MS })) {
      stream.send({ kind: 'text', text: decoder.decode(bytes, { stream: true }) });
      // Reads a long log no faster than the client receives it.
      while (stream.behind && !stream.over.aborted) await new Promise((resolve) => setTimeout(resolve, DRAIN_MS));
    }
    stream.send({ kind: 'end', reason: null });
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
    stream.send({ kind: 'end', reason: printable(error.message) });
  } finally {
    stream.close();
  }
}
