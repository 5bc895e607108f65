/**
 * A server in a process of its own whose address this process holds: connections are accepted here and handed over unread. One that
 * dies is started again behind the same address, which nobody else can take meanwhile; and who connects before it is up waits and is
 * not refused, so that a restart costs no request more than those which were under way.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';
import { EndpointError } from '../../core/errors.js';
import { listen } from '../../http/listen.js';
import { systemClock, type Clock } from '../../core/clock.js';
import { exitReason } from '../processes/failure.js';
import { newToken, TOKEN_VARIABLE } from './token.js';
import { Upkeep, type SayOfServer, type ServerUser } from './upkeep.js';

const HOST = '127.0.0.1';
const START_TIMEOUT_MS = 30_000;
/** Of what a server says before it ends, so many lines are told. */
const LAST_WORDS = 5;

/** What the server's process says over its channel: once that it is up, then that it has taken a connection. */
export type FromServer = 'up' | 'taken';

export interface KeptServerOptions {
  /** What it is called, such as `the embedded judge`. */
  readonly name: string;
  /**
   * Node's arguments: a module that speaks `FromServer` and serves the sockets that its messages bring, to those who send the token of
   * its environment's `TOKEN_VARIABLE`.
   */
  readonly command: readonly string[];
  readonly say: SayOfServer;
  /** What a person can do about a server that does not start or stay up. */
  readonly next: string;
  /** Told when it is given up. */
  readonly onLost: () => void;
  readonly clock?: Clock;
}

export class KeptServer {
  /** What its callers have to send, after a restart too. */
  readonly token = newToken();
  readonly #door = createServer({ pauseOnConnect: true }, (socket) => this.#accept(socket));
  readonly #waiting: Socket[] = [];
  /** One at a time, so that it is known which of them a dying process took along. */
  #handed: Socket | null = null;
  /** Running, though perhaps not up yet. */
  #child: ChildProcess | null = null;
  #isUp = false;
  #port = 0;
  readonly #clock: Clock;
  readonly #upkeep: Upkeep;

  private constructor(private readonly options: KeptServerOptions) {
    this.#clock = options.clock ?? systemClock;
    const { name, say, next, clock, onLost } = options;
    this.#upkeep = new Upkeep({
      name,
      say,
      next,
      ...(clock === undefined ? {} : { clock }),
      restart: () => this.#launch(),
      giveUp: () => {
        this.#shut();
        onLost();
      },
    });
  }

  /** Raises EndpointError where it does not start. */
  static async start(options: KeptServerOptions): Promise<KeptServer> {
    const server = new KeptServer(options);
    try {
      server.#port = await listen(server.#door, options.name, 0, HOST);
      server.#door.unref();
      const failed = await server.#launch();
      if (failed !== null) {
        const { name, next } = options;
        throw new EndpointError(`${name} did not start: it ${failed}`, { where: 'reward.endpoint', next });
      }
    } catch (error) {
      await server.close();
      throw error;
    }
    return server;
  }

  /** `http://HOST:PORT`; it stays the same for as long as the server is kept. */
  get origin(): string {
    return `http://${HOST}:${this.#port}`;
  }

  /** Tells a user how the server fares. */
  use(user: ServerUser): void {
    this.#upkeep.use(user);
  }

  /** Ends the server and drops its connections. */
  async close(): Promise<void> {
    this.#upkeep.close();
    this.#shut();
    const child = this.#child;
    if (child === null) return;
    // Nothing else may keep this process alive until it has ended.
    child.ref();
    (child.stderr as Socket).ref();
    const closed = new Promise<void>((resolve) => child.once('close', () => resolve()));
    // It keeps nothing that it would have to put away.
    child.kill('SIGKILL');
    await closed;
  }

  #shut(): void {
    this.#door.close();
    for (const socket of this.#waiting.splice(0)) socket.destroy();
  }

  #accept(socket: Socket): void {
    // Who waits may also go away.
    socket.on('error', () => undefined);
    this.#waiting.push(socket);
    this.#handOver();
  }

  #handOver(): void {
    if (!this.#isUp || this.#handed !== null) return;
    this.#handed = this.#waiting.shift() ?? null;
    // A process that has just ended takes nothing; its end says so.
    if (this.#handed !== null) this.#child?.send('connection', this.#handed, {}, () => undefined);
  }

  /** Null once it is up, else how it ended. */
  async #launch(): Promise<string | null> {
    const child = spawn(process.execPath, [...this.options.command], {
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: { ...process.env, [TOKEN_VARIABLE]: this.token },
      // A process group of its own: Ctrl-C must reach the run alone, which still needs the server to finish its iteration.
      detached: true,
    });
    this.#child = child;
    const words: string[] = [];
    createInterface({ input: child.stderr as Socket }).on('line', (line) => {
      words.push(line);
      if (words.length > LAST_WORDS) words.shift();
    });
    const ended = new Promise<string>((resolve) => {
      child.on('error', (error) => resolve(`could not be started: ${error.message}`));
      child.once('close', (code, signal) => {
        const { reason } = exitReason({ code, signal }, { told: null, kill: null });
        resolve([reason, ...words].join('\n  | '));
      });
    });
    const up = new Promise<null>((resolve) => {
      child.on('message', (message: FromServer) => {
        if (message === 'up') resolve(null);
        else this.#handed = null;
        this.#handOver();
      });
    });
    let isLate = false;
    const cancel = this.#clock.after(START_TIMEOUT_MS, () => {
      isLate = true;
      child.kill('SIGKILL');
    });
    const how = await Promise.race([up, ended]);
    cancel();
    if (how !== null) {
      this.#child = null;
      return isLate ? `was not up within ${START_TIMEOUT_MS / 1000} s` : how;
    }
    void ended.then((later) => this.#ended(later));
    child.unref();
    child.channel?.unref();
    (child.stderr as Socket).unref();
    this.#isUp = true;
    this.#handOver();
    return null;
  }

  #ended(how: string): void {
    this.#isUp = false;
    this.#child = null;
    this.#handed?.destroy();
    this.#handed = null;
    this.#upkeep.ended(how);
  }
}
