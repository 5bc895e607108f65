/** Streams a run's logs, through restarts, until the run has ended. */
import { EditrlError, printable } from '../core/errors.js';
import type { Call } from '../http/server.js';
import { followLog, type LogChoice } from '../run/follow_log.js';
import type { RunPaths } from '../run/paths.js';
import { EventStream } from './events.js';
import type { WireLog } from './wire.js';

const POLL_MS = 400;
const DRAIN_MS = 50;

/** Sends the content of a log, and continues while it grows. */
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
