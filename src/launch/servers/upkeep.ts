/** Keeping a server up: how often one that ended is started again, with what pauses, and who is told. */
import { EndpointError } from '../../core/errors.js';
import { systemClock, type Clock } from '../../core/clock.js';

/** Milliseconds before the first restart; twice as many before each that follows. */
const FIRST_PAUSE_MS = 250;
/** Restarts in a row that did not help: after them it is given up. */
const MOST_RESTARTS = 5;
/** Milliseconds after which a restart has helped: what ends the server later is counted from 1 again. */
const STEADY_MS = 60_000;

/** Somebody who asks the server, and has to know how it fares. */
export interface ServerUser {
  /** One line: the server ended and is started again. */
  readonly notice: (line: string) => void;
  /** It was given up; nobody will answer at its address. */
  readonly lost: (error: EndpointError) => void;
  /** Aborted when it asks no more. */
  readonly over: AbortSignal;
}

/** Where lines about a server go that belong to no run; `heard` says that users were told the same. */
export type SayOfServer = (line: string, heard: boolean) => void;

export interface UpkeepOptions {
  /** What the server is called, such as `the embedded judge`. */
  readonly name: string;
  /** The setting that says how it is started or found. */
  readonly where: string;
  /** Starts it at its address. Null once it is up, else how that failed, as `ended with exit code 1`. Never rejects. */
  readonly restart: () => Promise<string | null>;
  /** Called once when it is given up, before its users are told. */
  readonly giveUp: () => void;
  readonly say: SayOfServer;
  /** What a person can do about a server that does not stay up. */
  readonly next: string;
  readonly clock?: Clock;
}

/** Begins with a server that is up. */
export class Upkeep {
  readonly #users = new Set<ServerUser>();
  readonly #clock: Clock;
  #upSince: number;
  /** Deaths with no steady time between them. */
  #deaths = 0;
  #closed = false;
  #cancel: () => void = () => {};

  constructor(private readonly options: UpkeepOptions) {
    this.#clock = options.clock ?? systemClock;
    this.#upSince = this.#clock.now();
  }

  /** Tells a user until it is over. */
  use(user: ServerUser): void {
    if (user.over.aborted) return;
    this.#users.add(user);
    user.over.addEventListener('abort', () => this.#users.delete(user), { once: true });
  }

  /** Tells a line to those who use the server, and to whoever is told of servers. */
  tell(line: string): void {
    this.options.say(line, this.#users.size > 0);
    for (const user of this.#users) user.notice(line);
  }

  /** The server has ended, or could not be started again: `how`, as `was ended by SIGKILL`. */
  ended(how: string): void {
    if (this.#closed) return;
    if (this.#clock.now() - this.#upSince >= STEADY_MS) this.#deaths = 0;
    this.#deaths++;
    if (this.#deaths > MOST_RESTARTS) {
      this.#giveUp(how);
      return;
    }
    const pauseMs = FIRST_PAUSE_MS * 2 ** (this.#deaths - 1);
    const line = `${this.options.name} ${how}; it is started again in ${pauseMs / 1000} s (${this.#deaths} of ${MOST_RESTARTS})`;
    this.tell(line);
    this.#cancel = this.#clock.after(pauseMs, () => void this.#restart());
  }

  /** What ends from now on was meant to end. */
  close(): void {
    this.#closed = true;
    this.#cancel();
  }

  async #restart(): Promise<void> {
    // Until it is up, it has not been up for any time.
    this.#upSince = Infinity;
    const failed = await this.options.restart();
    if (failed === null) this.#upSince = this.#clock.now();
    else this.ended(failed);
  }

  #giveUp(how: string): void {
    const { name, where, next, giveUp, say } = this.options;
    this.close();
    giveUp();
    const error = new EndpointError(
      `${name} does not stay up: it was started again ${MOST_RESTARTS} times, and the last time it ${how}`,
      { where, next },
    );
    say(error.toText(), this.#users.size > 0);
    for (const user of this.#users) user.lost(error);
  }
}
