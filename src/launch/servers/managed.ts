/**
 * A server that this program starts in its own process and keeps up. If it ends, it is restarted at the same address, unless its users have lost what
 * they had there; it dies with this process, and requires a token from its callers. Its specification says what sets it apart from other servers.
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
 * The environment variable with the token of a server that this program starts. It listens on a loopback address, which every user of the machine can
 * reach: only the server and the runs that use it know its token. Only its user can read its environment, but anybody its arguments.
 */
export const TOKEN_VARIABLE = 'EDITRL_SERVER_TOKEN';

/** Milliseconds that a server may take to end after it was asked to, besides what its processes have. */
const MAX_END_MS = 30_000;
/** Milliseconds before the first restart; doubled for each further one. */
const FIRST_PAUSE_MS = 250;
/** Maximum number of failed restarts in a row before it is given up. */
const MAX_RESTARTS = 5;
/** Milliseconds after which a restart counts as successful: a later end is counted from 1 again. */
const STEADY_MS = 60_000;

/** A user of a server, who has to be informed about it. */
export interface ServerUser {
  /** Called with one line: the server ended and is being restarted. */
  readonly notice: (line: string) => void;
  /** Called when it was given up; nobody will answer at its address. */
  readonly lost: (error: EndpointError) => void;
  /** Aborted when the user is done with it. */
  readonly over: AbortSignal;
}

/** Receives lines about servers that belong to no run; `heard` means that users were told the same. */
export type ServerReporter = (line: string, heard: boolean) => void;

/** Where a server listens, and how to tell that it is up. */
export type Reached =
  /** It chooses its port at first and prints a line with its URL; a restart tells it to listen there again. */
  | { readonly kind: 'printed'; readonly urlIn: (line: string) => string | null }
  /** It listens on a given port, and is up when `ask` returns. */
  | {
      readonly kind: 'asked';
      readonly port: number;
      readonly ask: (url: string, token: string, over: AbortSignal) => Promise<void>;
    };

/** The line of this program's own servers with `--json`. */
export function urlOfJson(line: string): string | null {
  return line.startsWith('{"url":') ? (JSON.parse(line) as { url: string }).url : null;
}

export interface ServerSpecification {
  /** Its name, such as `the embedded judge`. */
  readonly name: string;
  /** The setting that says how it is started or found. */
  readonly where: string;
  /** What a person can do if it does not start or stay up. */
  readonly next: string;
  readonly reached: Reached;
  /** The program and its arguments, given the port to listen on: 0 for any. */
  readonly command: (port: number) => readonly string[];
  /** Its environment besides this process's, given the token that its callers send; default: `TOKEN_VARIABLE`. */
  readonly environment?: (token: string) => Readonly<Record<string, string>>;
  /** The message if there is no such program. */
  readonly noProgram?: { readonly where: string; readonly next: string };
  /** Seconds within which it has to be up. */
  readonly startTimeoutS: number;
  /** Whether what its users have there ends with it, so that it is not started again; default: no. */
  readonly endsItsUsers?: boolean;
  /** Seconds that processes it started have to end after it. */
  readonly graceS?: number;
  /** How many of its last lines are reported with its end. */
  readonly shownLines: number;
  /** File to which its output is appended. */
  readonly log?: string;
  /** Called with each line that it prints. */
  readonly onLine?: (line: string) => void;
}

export interface ManagedServerOptions {
  readonly guardian: Guardian;
  readonly say: ServerReporter;
  /** Called when it is given up. */
  readonly onLost?: () => void;
  /** The user waiting for its start; see `use`. Others may follow. */
  readonly user?: ServerUser;
  readonly clock?: Clock;
}

export class ManagedServer {
  /** The token its callers have to send, which stays the same over restarts. */
  readonly token = randomBytes(32).toString('hex');
  readonly #users = new Set<ServerUser>();
  readonly #log: WriteStream | null;
  readonly #clock: Clock;
  readonly #closed = new AbortController();
  #child: GuardedChild | null = null;
  /** Resolves once nothing is left of it. */
  #gone: Promise<void> = Promise.resolve();
  #starting: Promise<string | null> = Promise.resolve(null);
  #isUp: () => void = () => {};
  #url = '';
  #upSince: number;
  /** Deaths without a steady period between them. */
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

  /** Returns when it is up. Raises EndpointError when it does not start, ConfigError when there is no such program. */
  static async start(spec: ServerSpecification, options: ManagedServerOptions): Promise<ManagedServer> {
    const server = new ManagedServer(spec, options);
    try {
      const { reached, name, where, next } = spec;
      if (reached.kind === 'asked') server.#url = `http://${MASTER_ADDRESS}:${reached.port}`;
      const failed = await server.#launch();
      if (failed !== null) throw new EndpointError(`${name} did not start: it ${failed}`, { where, next });
      return server;
    } catch (error) {
      await server.close();
      throw error;
    }
  }

  /** Its URL, as it reports it or `http://HOST:PORT`; it stays the same while the server is kept. */
  get url(): string {
    return this.#url;
  }

  /** Informs a user about the server until the user is done. */
  use(user: ServerUser): void {
    if (user.over.aborted) return;
    this.#users.add(user);
    user.over.addEventListener('abort', () => this.#users.delete(user), { once: true });
  }

  /** Ends it and everything that it started. */
  async close(): Promise<void> {
    this.#closed.abort();
    this.#cancelRestart();
    await this.#starting.catch(() => null);
    await this.#endChild();
    await new Promise<void>((resolve) => (this.#log === null ? resolve() : this.#log.end(() => resolve())));
  }

  /** One that does not end when it is asked to is ended by force: a run that has ended does not wait for it for ever. */
  async #endChild(): Promise<void> {
    const child = this.#child;
    if (child === null) return;
    child.signal('SIGTERM');
    const cancel = this.#clock.after(MAX_END_MS + 1000 * (this.spec.graceS ?? 0), () => child.signal('SIGKILL'));
    await this.#gone;
    cancel();
  }

  /** The log is a convenience: problems with it are reported, and end nothing. */
  #openLog(file: string): WriteStream {
    mkdirSync(dirname(file), { recursive: true });
    return createWriteStream(file, { flags: 'a' }).on('error', (error) =>
      this.#tell(`the log of ${this.spec.name} cannot be written: ${error.message}`),
    );
  }

  /** Sends a line to its users, and to the listener for servers. */
  #tell(line: string): void {
    this.options.say(line, this.#users.size > 0);
    for (const user of this.#users) user.notice(line);
  }

  /** Null once it is up, else how starting failed. */
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
    // What it started may have left its process group, and would keep its GPU.
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
      // Servers of that kind are this program's own commands, which end when their input does.
      tied: spec.reached.kind === 'printed',
      graceS: spec.graceS ?? 0,
      onLine: (line: string) => this.#hear(line),
      onMessage: () => {},
    };
    try {
      return await GuardedChild.start(options, this.options.guardian);
    } catch (error) {
      if (!(error instanceof ConfigError) || spec.noProgram === undefined) throw error;
      throw new ConfigError(error.message, { ...spec.noProgram, cause: error });
    }
  }

  /** Null once it is up, else what it answered wrongly. */
  async #untilUp(over: AbortSignal): Promise<string | null> {
    const { reached } = this.spec;
    if (reached.kind === 'printed') return new Promise((resolve) => (this.#isUp = () => resolve(null)));
    try {
      await reached.ask(this.#url, this.token, over);
      return null;
    } catch (error) {
      if (!(error instanceof EndpointError)) throw error;
      return `was not ready: ${error.message}`;
    }
  }

  #hear(line: string): void {
    const { reached, onLine } = this.spec;
    const url = reached.kind === 'printed' ? reached.urlIn(line) : null;
    if (url !== null) {
      this.#url = url;
      this.#isUp();
      return;
    }
    this.#log?.write(`${line}\n`);
    onLine?.(line);
  }

  /** It has ended, or could not be restarted: `how`, such as `was ended by SIGKILL`. */
  #ended(how: string): void {
    const { name, endsItsUsers = false } = this.spec;
    if (this.#closed.signal.aborted) return;
    if (this.#clock.now() - this.#upSince >= STEADY_MS) this.#deaths = 0;
    this.#deaths++;
    if (endsItsUsers || this.#deaths > MAX_RESTARTS) {
      this.#giveUp(how);
      return;
    }
    const pauseMs = FIRST_PAUSE_MS * 2 ** (this.#deaths - 1);
    this.#tell(`${name} ${how}; restarting it in ${pauseMs / 1000} s (${this.#deaths} of ${MAX_RESTARTS})`);
    this.#cancelRestart = this.#clock.after(pauseMs, () => void this.#restart());
  }

  async #restart(): Promise<void> {
    // It is not counted as up until it is.
    this.#upSince = Infinity;
    const failed = await this.#launch().catch((error: unknown) => `could not be started: ${String(error)}`);
    if (failed === null) this.#upSince = this.#clock.now();
    else this.#ended(failed);
  }

  #giveUp(how: string): void {
    const { name, where, next, endsItsUsers = false } = this.spec;
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

  /** Includes its last lines, unless it was ended from outside, which they have nothing to do with. */
  #howItEnded(exit: ChildExit, tail: readonly string[]): string {
    const { reason } = exitReason(exit, { told: null, kill: null });
    const words = exit.signal === 'SIGKILL' || exit.signal === 'SIGTERM' ? [] : tail.slice(-this.spec.shownLines);
    return [reason, ...words].join('\n  | ');
  }
}

/** Servers with several users: each is started when first needed, and again if it was given up since. */
export class SharedServers {
  readonly #servers = new Map<string, Promise<ManagedServer>>();

  /** The server for a key, which informs the user about itself. Raises what `start` does; the next call tries again. */
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
