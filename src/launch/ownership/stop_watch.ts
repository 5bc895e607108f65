/** Watches for the file by which a run of another trainer is asked to end. */
import type { RunPaths } from '../../run/paths.js';
import { forgetStopRequest, KILLED, readStopRequest } from '../../run/stop_request.js';

const LOOK_EVERY_MS = 200;

export class StopWatch {
  readonly #stop = new AbortController();
  readonly #kill = new AbortController();
  readonly #timer: NodeJS.Timeout;

  /** Forgets what an earlier attempt was asked. */
  constructor(private readonly paths: RunPaths) {
    forgetStopRequest(paths);
    this.#timer = setInterval(() => this.#look(), LOOK_EVERY_MS);
    this.#timer.unref();
  }

  /** Aborted when the run is asked to save and end. */
  get stop(): AbortSignal {
    return this.#stop.signal;
  }

  /** Aborted when it is asked to end at once, with that as the reason. */
  get kill(): AbortSignal {
    return this.#kill.signal;
  }

  close(): void {
    clearInterval(this.#timer);
    forgetStopRequest(this.paths);
  }

  #look(): void {
    const asked = readStopRequest(this.paths);
    if (asked !== null) this.#stop.abort();
    if (asked === 'now') this.#kill.abort(KILLED);
  }
}
