/** A stand-in for a server on loopback, with the table of what goes wrong on the way to any server. */
import { createServer, type IncomingMessage, type RequestListener, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

/** What goes wrong with one request, in place of its answer. */
export type Fault =
  | {
      readonly kind: 'status';
      readonly status: number;
      readonly message?: string;
      /** In place of an error with the message. */
      readonly body?: unknown;
      readonly retryAfter?: string;
    }
  /** The request is taken, and nothing comes. */
  | { readonly kind: 'stall' }
  /** The connection is reset. */
  | { readonly kind: 'cut' }
  /** The connection is reset in the middle of the reply. */
  | { readonly kind: 'half' };

export interface Listening {
  readonly server: Server;
  readonly port: number;
  readonly url: string;
  readonly close: () => Promise<void>;
}

/** Serves on a free port of 127.0.0.1 unless one is given. */
export async function listening(listener: RequestListener, port = 0): Promise<Listening> {
  const server = createServer((request, response) => {
    // A client that went away is what several tests are about.
    response.on('error', () => undefined);
    listener(request, response);
  });
  await new Promise<void>((resolve) => server.listen(port, '127.0.0.1', resolve));
  const bound = (server.address() as AddressInfo).port;
  return {
    server,
    port: bound,
    url: `http://127.0.0.1:${bound}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** @typeParam R a request as the stub reads it. @typeParam S faults of this kind of server alone, which `reply` acts on. */
export abstract class StubServer<R, S extends { readonly kind: string } = never> {
  readonly requests: R[] = [];
  /** Requested for every request that can fail. */
  fault: (request: R) => Fault | S | null = () => null;
  /** The most requests that were answered at once. */
  peak = 0;
  #underWay = 0;
  #listening!: Listening;

  protected abstract read(incoming: IncomingMessage, body: Buffer): R | Promise<R>;
  protected abstract reply(request: R, response: ServerResponse, fault: S | null): void | Promise<void>;

  /** Why a request is not even read, as a status and a body; null where it is. */
  protected readonly refuses: (incoming: IncomingMessage) => readonly [status: number, body: unknown] | null = () =>
    null;

  /** Whether faults are asked for this request; for every one by default. */
  protected readonly canFail: (request: R) => boolean = () => true;

  /** What is answered where the stub itself fails. */
  protected broken(error: unknown): readonly [status: number, body: unknown] {
    return [500, failure(error instanceof Error ? (error.stack ?? '') : String(error), 500)];
  }

  async listen(port = 0): Promise<this> {
    this.#listening = await listening((incoming, response) => {
      this.#answer(incoming, response).catch((error: unknown) => send(response, ...this.broken(error)));
    }, port);
    return this;
  }

  get port(): number {
    return this.#listening.port;
  }

  get url(): string {
    return this.#listening.url;
  }

  /** Resolves when nobody holds a connection to it: what a client that was killed had sent is counted by then. */
  async idle(): Promise<void> {
    const open = (): Promise<number> =>
      new Promise((resolve, reject) =>
        this.#listening.server.getConnections((error, count) => (error === null ? resolve(count) : reject(error))),
      );
    while ((await open()) > 0) await new Promise((resolve) => setTimeout(resolve, 20));
  }

  close(): Promise<void> {
    return this.#listening.close();
  }

  async #answer(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const pieces: Buffer[] = [];
    for await (const piece of incoming) pieces.push(piece as Buffer);
    const refused = this.refuses(incoming);
    if (refused !== null) return send(response, ...refused);
    const request = await this.read(incoming, Buffer.concat(pieces));
    this.requests.push(request);
    const fault = this.canFail(request) ? this.fault(request) : null;
    if (fault !== null && isCommon(fault)) return act(fault, incoming, response);
    this.peak = Math.max(this.peak, ++this.#underWay);
    // Requests that arrive together are under way together.
    await new Promise((resolve) => setImmediate(resolve));
    try {
      await this.reply(request, response, fault);
    } finally {
      this.#underWay--;
    }
  }
}

const acts: {
  readonly [K in Fault['kind']]: (
    fault: Extract<Fault, { kind: K }>,
    incoming: IncomingMessage,
    response: ServerResponse,
  ) => void;
} = {
  status: ({ status, message = 'as the test says', body, retryAfter }, _incoming, response) =>
    send(response, status, body ?? failure(message, status), retryAfter),
  stall: () => undefined,
  cut: (_fault, incoming) => incoming.socket.resetAndDestroy(),
  half: (_fault, incoming, response) => {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': '400' }).write('{"data": [');
    setTimeout(() => incoming.socket.resetAndDestroy(), 5);
  },
};

function isCommon(fault: { readonly kind: string }): fault is Fault {
  return Object.hasOwn(acts, fault.kind);
}

function act<K extends Fault['kind']>(
  fault: Extract<Fault, { kind: K }>,
  incoming: IncomingMessage,
  response: ServerResponse,
): void {
  acts[fault.kind](fault, incoming, response);
}

/** An error as OpenAI's servers write it. */
export function failure(message: string, code: number | null = null): object {
  return { error: { message, type: 'Error', param: null, code } };
}

/** A text as it is, anything else as JSON. */
export function send(response: ServerResponse, status: number, body: unknown, retryAfter?: string): void {
  const isText = typeof body === 'string';
  response
    .writeHead(status, {
      'content-type': isText ? 'text/plain' : 'application/json',
      ...(retryAfter === undefined ? {} : { 'retry-after': retryAfter }),
    })
    .end(isText ? body : JSON.stringify(body));
}
