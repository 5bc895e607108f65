/** Keeps a server up: how often it is restarted, with what pauses, and who is informed. */
import { EndpointError, ServerEndedError } from '../../core/errors.js';
import { systemClock, type Clock } from '../../core/clock.js';
import { GO_ON } from '../processes/failure.js';

/** Milliseconds before the first restart; doubled for each further one. */
const FIRST_PAUSE_MS = 250;
/** Maximum number of failed restarts in a row before it is given up. */
const MOST_RESTARTS = 5;
/** Milliseconds after which a restart counts as successful: a later end is counted from 1 again. */
const STEADY_MS = 60_000;

/** A user of the server, who has to be informed about it. */
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

export interface UpkeepOptions {
  /** The server's name, such as `the embedded judge`. */
  readonly name: string;
  /** The setting that says how it is started or found. */
  readonly where: string;
  /** Starts it at its address. Null once it is up, else how that failed, such as `ended with exit code 1`. Never rejects. */
  readonly restart: () => Promise<string | null>;
  /** Whether what its users have there ends with it, so that it is not started again; default: no. */
  readonly endsItsUsers?: boolean;
  /** Called once when it is given up, before its users are told. */
  readonly giveUp: () => void;
  readonly say: ServerReporter;
  /** What a person can do if the server does not stay up. */
  readonly next: string;
  readonly clock?: Clock;
}

/** Expects a server that is up. */
export class Upkeep {
  readonly #users = new Set<ServerUser>();
  readonly #clock: Clock;
  #upSince: number;
  /** Deaths without a steady period between them. */
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

  /** Sends a line to the server's users, and to the listener for servers. */
  tell(line: string): void {
    this.options.say(line, this.#users.size > 0);
    for (const user of this.#users) user.notice(line);
  }

  /** The server has ended, or could not be restarted: `how`, such as `was ended by SIGKILL`. */
  ended(how: string): void {
    if (this.#closed) return;
    if (this.#clock.now() - this.#upSince >= STEADY_MS) this.#deaths = 0;
    this.#deaths++;
    if (this.options.endsItsUsers === true || this.#deaths > MOST_RESTARTS) {
      this.#giveUp(how);
      return;
    }
    const pauseMs = FIRST_PAUSE_MS * 2 ** (this.#deaths - 1);
    const line = `${this.options.name} ${how}; it is started again in ${pauseMs / 1000} s (${this.#deaths} of ${MOST_RESTARTS})`;
    this.tell(line);
    this.#cancel = this.#clock.after(pauseMs, () => void this.#restart());
  }

  /** From now on, an end is intended. */
  close(): void {
    this.#closed = true;
    this.#cancel();
  }

  async #restart(): Promise<void> {
    // It is not counted as up until it is.
    this.#upSince = Infinity;
    const failed = await this.options.restart();
    if (failed === null) this.#upSince = this.#clock.now();
    else this.ended(failed);
  }

  #giveUp(how: string): void {
    const { name, where, next, giveUp, say, endsItsUsers = false } = this.options;
    this.close();
    giveUp();
    const error = endsItsUsers
      ? new ServerEndedError(`${name} that was started with the run ${how}`, { where, next: `${next}\n  ${GO_ON}` })
      : new EndpointError(
          `${name} does not stay up: it was started again ${MOST_RESTARTS} times, and the last time it ${how}`,
          { where, next },
        );
    say(error.toText(), this.#users.size > 0);
    for (const user of this.#users) user.lost(error);
  }
}
