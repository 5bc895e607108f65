/** What a server answers, and how that reaches a client who may still be sending, or not reading. */
import type { IncomingMessage, ServerResponse } from 'node:http';

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

/** @param last whether the connection is closed behind the reply. */
export function send(request: IncomingMessage, response: ServerResponse, reply: Reply, last: boolean): void {
  if (response.destroyed || response.headersSent) return;
  const rest = !request.complete;
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
  if (response.writableLength === 0) return;
  const drop = setTimeout(() => request.socket.destroy(), unreadMs);
  response.once('close', () => clearTimeout(drop));
}
