/**
 * A server that editrl starts in its own process and keeps running.
 * It restarts at the same address after it ends, unless its users have lost their state in it. It ends with this
 * process and requires a token from its callers. `ServerSpecification` holds the differences between servers.
 */
import { randomBytes } from 'node:crypto';
import { createWriteStream, mkdirSync, type WriteStream } from 'node:fs';
import { dirname } from 'node:path';
import { systemClock, type Clock } from '../../core/clock.js';
import { ConfigError, EndpointError, ServerEndedError } from '../../core/errors.js';
import { endMarked, GuardedChild, type ChildExit } from '../processes/child.js';
import { exitReason, HOW_TO_CONTINUE } from '../processes/failure.js';
import type { Guardian } from '../processes/guardian.js';
import { MASTER_ADDRESS } from '../processes/supervise.js';

/**
 * The environment variable that contains the token of a server that editrl starts.
 * The server listens on a loopback address, which every user of the machine can reach. The token restricts access to
 * the server's own runs. It is passed in the environment because any user can read a process's arguments.
 */
export const TOKEN_VARIABLE = 'EDITRL_SERVER_TOKEN';

/** Milliseconds that a server may take to end after SIGTERM, in addition to `graceS`. */
const MAX_END_MS = 30_000;
/** Milliseconds before the first restart. Each further pause is twice as long. */
const FIRST_PAUSE_MS = 250;
/** Number of failed restarts in a row after which a server is given up. */
const MAX_RESTARTS = 5;
/** Milliseconds after which a restart counts as successful, and the count of restarts begins at 1 again. */
const STEADY_MS = 60_000;

/** A user of a server, which receives notices about it. */
export interface ServerUser {
  /** Called with one line: the server ended and is being restarted. */
  readonly notice: (line: string) => void;
  /** Called when the server was given up. No one will answer at its address. */
  readonly lost: (error: EndpointError) => void;
  /** Aborted when the user no longer needs the server. */
  readonly over: AbortSignal;
}

/** Receives lines about servers that belong to no run. `reachedUsers` is true if the server's users received the same line. */
export type ServerReporter = (line: string, reachedUsers: boolean) => void;

/** How the server's address is chosen, and how to detect that it is ready. */
export type Readiness =
  /** The server chooses its port and prints a line with its URL. A restart passes that port. */
  | { readonly kind: 'printed'; readonly urlIn: (line: string) => string | null }
  /** The server listens on a given port and is ready when `probe` returns. */
  | {
      readonly kind: 'probed';
      readonly port: number;
      readonly probe: (url: string, token: string, over: AbortSignal) => Promise<void>;
    };

/** The URL in the line that editrl's own servers print with `--json`. Null for other lines. */
export function urlOfJson(line: string): string | null {
  return line.startsWith('{"url":') ? (JSON.parse(line) as { url: string }).url : null;
}

export interface ServerSpecification {
  /** Its name, such as `the embedded judge`. */
  readonly name: string;
  /** The setting that starts or finds the server. */
  readonly where: string;
  /** What to do if the server does not start or keeps ending. */
  readonly next: string;
  readonly readiness: Readiness;
  /** The program and its arguments for a port. Port 0 means any. */
  readonly command: (port: number) => readonly string[];
  /** Variables added to the environment, for the token of its callers. Default: `TOKEN_VARIABLE`. */
  readonly environment?: (token: string) => Readonly<Record<string, string>>;
  /** The message if the program does not exist. */
  readonly noProgram?: { readonly where: string; readonly next: string };
  /** Seconds within which the server has to be ready. */
  readonly startTimeoutS: number;
  /** Whether its users lose their state when it ends. It is then not restarted. Default: no. */
  readonly isFatalToUsers?: boolean;
  /** Seconds that its own child processes have to end after it. */
  readonly graceS?: number;
  /** Number of its last lines to report when it ends. */
  readonly shownLines: number;
  /** File to which its output is appended. */
  readonly log?: string;
  /** Receives each line that it prints. */
  readonly onLine?: (line: string) => void;
}

export interface ManagedServerOptions {
  readonly guardian: Guardian;
  readonly say: ServerReporter;
  /** Called when the server is given up. */
  readonly onLost?: () => void;
  /** The user that waits for the start. More users can follow with `use`. */
  readonly user?: ServerUser;
  readonly clock?: Clock;
}

export class ManagedServer {
  /** The token that callers have to send. Restarts keep it. */
  readonly token = randomBytes(32).toString('hex');
  readonly #users = new Set<ServerUser>();
  readonly #log: WriteStream | null;
  readonly #clock: Clock;
  readonly #closed = new AbortController();
  #child: GuardedChild | null = null;
  /** Resolves once none of its processes is left. */
  #gone: Promise<void> = Promise.resolve();
  #starting: Promise<string | null> = Promise.resolve(null);
  #isUp: () => void = () => {};
  #url = '';
  #upSince: number;
  /** Number of ends without `STEADY_MS` of service between them. */
  #deaths = 0;
  #cancelRestart: () => void = () => {};

  private constructor(
    private readonly spec: ServerSpecification,
    private readonly options: ManagedServerOptions,
  ) {
    this.#clock = options.clock ?? systemClock;
    this.#upSince = this.#clock.now();
    if (options.user !== undefined) this.use(options.user);
    this.#log = spec.log === undefined ? null : this.#openLog(spec.log);
  }

  /**
   * Returns when the server is ready. Raises EndpointError when it does not start, ConfigError when the program does
   * not exist.
   */
  static async start(spec: ServerSpecification, options: ManagedServerOptions): Promise<ManagedServer> {
    const server = new ManagedServer(spec, options);
    try {
      const { readiness, name, where, next } = spec;
      if (readiness.kind === 'probed') server.#url = `http://${MASTER_ADDRESS}:${readiness.port}`;
      const failed = await server.#launch();
      if (failed !== null) throw new EndpointError(`${name} did not start: it ${failed}`, { where, next });
      return server;
    } catch (error) {
      await server.close();
      throw error;
    }
  }

  /** The URL that the server printed, or `http://HOST:PORT`. It stays the same over restarts. */
  get url(): string {
    return this.#url;
  }

  /** Sends notices about the server to a user until `user.over` aborts. */
  use(user: ServerUser): void {
    if (user.over.aborted) return;
    this.#users.add(user);
    user.over.addEventListener('abort', () => this.#users.delete(user), { once: true });
  }

  /** Ends the server and all its child processes. */
  async close(): Promise<void> {
    this.#closed.abort();
    this.#cancelRestart();
    await this.#starting.catch(() => null);
    await this.#endChild();
    await new Promise<void>((resolve) => (this.#log === null ? resolve() : this.#log.end(() => resolve())));
  }

  /** Ends the server by force if it ignores SIGTERM, so that a finished run never waits forever. */
  async #endChild(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    child.signal('SIGTERM');
    const cancel = this.#clock.after(MAX_END_MS + 1000 * (this.spec.graceS ?? 0), () => child.signal('SIGKILL'));
    await this.#gone;
    cancel();
  }

  /** Problems with the log file are reported and end nothing. */
  #openLog(file: string): WriteStream {
    mkdirSync(dirname(file), { recursive: true });
    return createWriteStream(file, { flags: 'a' }).on('error', (error) =>
      this.#notify(`the log of ${this.spec.name} cannot be written: ${error.message}`),
    );
  }

  /** Sends a line to the users and to the reporter. */
  #notify(line: string): void {
    this.options.say(line, this.#users.size > 0);
    for (const user of this.#users) user.notice(line);
  }

  /** Returns null once the server is ready, else how starting failed. */
  #launch(): Promise<string | null> {
    this.#starting = this.#startProcess();
    return this.#starting;
  }

  async #startProcess(): Promise<string | null> {
    const { spec, options } = this;
    const { startTimeoutS } = spec;
    const mark = options.guardian.markAttempt();
    const child = await this.#spawn(mark);
    this.#child = child;
    // Its child processes may have left the process group and would keep the GPU.
    this.#gone = child.ended.then(() => endMarked(mark, spec.graceS ?? 0));
    const ended = this.#gone.then(async () => this.#howItEnded(await child.ended, child.tail));
    const over = new AbortController();
    const userOver = options.user === undefined ? [] : [options.user.over];
    const stopped = AbortSignal.any([over.signal, this.#closed.signal, ...userOver]);
    let cancel = (): void => {};
    const late = new Promise<string>((resolve) => {
      cancel = this.#clock.after(startTimeoutS * 1000, () => resolve(`was not up within ${startTimeoutS} s`));
      stopped.addEventListener('abort', () => resolve('was ended while it started'));
      if (stopped.aborted) resolve('was ended while it started');
    });
    const how = await Promise.race([this.#untilUp(stopped), ended, late]);
    cancel();
    over.abort();
    if (how === null) {
      void ended.then((later) => this.#ended(later));
      return null;
    }
    child.signal('SIGKILL');
    await this.#gone;
    return how;
  }

  async #spawn(mark: string): Promise<GuardedChild> {
    const { spec } = this;
    const environment = spec.environment ?? ((token: string) => ({ [TOKEN_VARIABLE]: token }));
    const options = {
      command: spec.command(Number(new URL(this.#url || 'http://localhost:0').port)),
      env: { ...process.env, ...environment(this.token) },
      mark,
      ipc: false,
      // Servers of that kind are editrl's own commands, which end when their input closes.
      tied: spec.readiness.kind === 'printed',
      graceS: spec.graceS ?? 0,
      onLine: (line: string) => this.#onLine(line),
      onMessage: () => {},
    };
    try {
      return await GuardedChild.start(options, this.options.guardian);
    } catch (error) {
      if (!(error instanceof ConfigError) || spec.noProgram === undefined) throw error;
      throw new ConfigError(error.message, { ...spec.noProgram, cause: error });
    }
  }

  /** Returns null once the server is ready, else the wrong answer that it gave. */
  async #untilUp(over: AbortSignal): Promise<string | null> {
    const { readiness } = this.spec;
    if (readiness.kind === 'printed') return new Promise((resolve) => (this.#isUp = () => resolve(null)));
    try {
      await readiness.probe(this.#url, this.token, over);
      return null;
    } catch (error) {
      if (!(error instanceof EndpointError)) throw error;
      return `was not ready: ${error.message}`;
    }
  }

  #onLine(line: string): void {
    const { readiness, onLine } = this.spec;
    const url = readiness.kind === 'printed' ? readiness.urlIn(line) : null;
    if (url !== null) {
      this.#url = url;
      this.#isUp();
      return;
    }
    this.#log?.write(`${line}\n`);
    onLine?.(line);
  }

  /** Handles the end of the server or a failed restart. `how` is a text such as `was ended by SIGKILL`. */
  #ended(how: string): void {
    const { name, isFatalToUsers: endsItsUsers = false } = this.spec;
    if (this.#closed.signal.aborted) return;
    if (this.#clock.now() - this.#upSince >= STEADY_MS) this.#deaths = 0;
    this.#deaths++;
    if (endsItsUsers || this.#deaths > MAX_RESTARTS) {
      this.#giveUp(how);
      return;
    }
    const pauseMs = FIRST_PAUSE_MS * 2 ** (this.#deaths - 1);
    this.#notify(`${name} ${how}; restarting it in ${pauseMs / 1000} s (${this.#deaths} of ${MAX_RESTARTS})`);
    this.#cancelRestart = this.#clock.after(pauseMs, () => void this.#restart());
  }

  async #restart(): Promise<void> {
    // It counts as up only once the restart has succeeded.
    this.#upSince = Infinity;
    const failed = await this.#launch().catch((error: unknown) => `could not be started: ${String(error)}`);
    if (failed === null) this.#upSince = this.#clock.now();
    else this.#ended(failed);
  }

  #giveUp(how: string): void {
    const { name, where, next, isFatalToUsers: endsItsUsers = false } = this.spec;
    this.#closed.abort();
    this.options.onLost?.();
    const error = endsItsUsers
      ? new ServerEndedError(`${name} that was started with the run ${how}`, {
          where,
          next: `${next}\n  ${HOW_TO_CONTINUE}`,
        })
      : new EndpointError(`${name} keeps ending: ${MAX_RESTARTS} restarts failed, and the last time it ${how}`, {
          where,
          next,
        });
    this.options.say(error.toText(), this.#users.size > 0);
    for (const user of this.#users) user.lost(error);
  }

  /** Includes the server's last lines, unless someone ended it from outside, when they explain nothing. */
  #howItEnded(exit: ChildExit, tail: readonly string[]): string {
    const { reason } = exitReason(exit, { printed: null, kill: null });
    const words = exit.signal === 'SIGKILL' || exit.signal === 'SIGTERM' ? [] : tail.slice(-this.spec.shownLines);
    return [reason, ...words].join('\n  | ');
  }
}

/** Servers with several users. Each starts on first use, and starts again on the next use after it was given up. */
export class SharedServers {
  readonly #servers = new Map<string, Promise<ManagedServer>>();

  /**
   * Returns the server for a key and sends its notices to the user. Raises the errors of `start`. A later call then
   * tries again.
   */
  async use(
    key: string,
    start: (onLost: () => void) => Promise<ManagedServer>,
    user?: ServerUser,
  ): Promise<ManagedServer> {
    const starting = this.#servers.get(key) ?? start(() => this.#servers.delete(key));
    this.#servers.set(key, starting);
    try {
      const server = await starting;
      if (user !== undefined) server.use(user);
      return server;
    } catch (error) {
      if (this.#servers.get(key) === starting) this.#servers.delete(key);
      throw error;
    }
  }

  async close(): Promise<void> {
    const servers = [...this.#servers.values()];
    this.#servers.clear();
    await Promise.all(servers.map(async (server) => (await server.catch(() => null))?.close()));
  }
}
