/** A server's replies, and how they reach a client that may still be sending, or not reading. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { HeldBytes, Hold } from './body.js';
import { callerOf } from './caller.js';
import { Refusal } from './refusal.js';

export interface Reply {
  readonly status: number;
  /** The content type. */
  readonly type: string;
  readonly body: string | Buffer;
  readonly headers?: Readonly<Record<string, string>>;
}

export function json(status: number, body: unknown, headers: Readonly<Record<string, string>> = {}): Reply {
  return { status, type: 'application/json', body: JSON.stringify(body), headers };
}

/** A page of metrics in Prometheus' text format. */
export function metricsPage(text: string): Reply {
  return { status: 200, type: 'text/plain; version=0.0.4; charset=utf-8', body: text };
}

/** How long, and how much of, the rest of a refused body is taken and thrown away, so that its sender comes to read the reply. */
const lingerMs = 2_000;
const lingerBytes = 10_000_000;
/** How long a client may leave its reply unread. */
const unreadMs = 60_000;

/**
 * Counts the reply as held until its client has read it or is gone; one that there is no room for becomes a refusal.
 * @param last whether the connection is closed behind the reply.
 */
export function send(
  request: IncomingMessage,
  response: ServerResponse,
  wanted: Reply,
  last: boolean,
  held: HeldBytes,
): void {
  const { socket } = request;
  if (response.destroyed || response.headersSent || socket.destroyed) return;
  const rest = !request.complete;
  const hold = held.hold(callerOf(socket));
  const reply = fitting(wanted, hold, held.most);
  let drop: NodeJS.Timeout | undefined;
  const done = (): void => {
    clearTimeout(drop);
    hold.release();
    response.off('close', done);
    socket.off('close', done);
  };
  response.once('close', done);
  // A reply that waits behind another one on its connection does not hear of the connection's end.
  socket.once('close', done);
  response.writeHead(reply.status, {
    ...reply.headers,
    'content-type': reply.type,
    'content-length': Buffer.byteLength(reply.body),
    ...(rest || last ? { connection: 'close' } : {}),
  });
  if (rest) {
    // Ending at once would reset the connection under a client that is still sending, and the reply would be lost.
    response.write(reply.body);
    const end = (): void => {
      clearTimeout(timer);
      response.end();
    };
    const timer = setTimeout(end, lingerMs);
    let left = lingerBytes;
    request.on('data', (piece: Buffer) => {
      left -= piece.length;
      if (left < 0) end();
    });
    request.once('end', end).once('error', end).once('close', end).resume();
  } else {
    response.end(reply.body);
  }
  if (response.writableLength === 0) done();
  else drop = setTimeout(() => socket.destroy(), unreadMs);
}

/** The reply, or a refusal if there is no room to hold it; a reply larger than anything that can be held counts as `most`. */
function fitting(reply: Reply, hold: Hold, most: number): Reply {
  try {
    hold.take(Math.min(Buffer.byteLength(reply.body), most));
    return reply;
  } catch (error) {
    // Refusals are small, and whoever waits has to hear of them.
    if (error instanceof Refusal) return json(error.status, error.body(), error.headers);
    throw error;
  }
}
