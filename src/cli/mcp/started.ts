/** Commands that an agent starts: each runs in a process that outlives this one, as if a person had typed it. */
import { setTimeout as sleep } from 'node:timers/promises';
import { RunError } from '../../core/errors.js';
import { startCommand } from '../../web/actions.js';

/** A command that was started here. */
export interface StartedCommand {
  /** The run_name or the experiment. */
  readonly name: string;
  readonly command: string;
  /** How it ended, with the end of what it printed; null while it goes on. */
  readonly ended: string | null;
}

/** The longest wait for a command to be under way or to refuse. */
const LONGEST_START_MS = 20_000;
const LOOK_EVERY_MS = 100;

export class StartedCommands {
  readonly #all: { name: string; command: string; ended: string | null }[] = [];

  /** @param program the words that start this program's command line. */
  constructor(
    private readonly program: readonly string[],
    private readonly longestStartMs = LONGEST_START_MS,
  ) {}

  get all(): readonly StartedCommand[] {
    return this.#all.map((one) => ({ ...one }));
  }

  /**
   * Starts a command, and returns when `isUnderWay` is true, when the command has ended, or after the longest wait. Raises RunError, with the end of
   * its output, if it has failed by then.
   */
  async start(name: string, args: readonly string[], isUnderWay: () => boolean): Promise<StartedCommand> {
    const started: { name: string; command: string; ended: string | null } = {
      name,
      command: ['editrl', ...args].join(' '),
      ended: null,
    };
    let failed = false;
    this.#all.push(started);
    startCommand(this.program, args, 'it has ended', (level, text) => {
      failed = level === 'error';
      started.ended = text;
    });
    const until = performance.now() + this.longestStartMs;
    while (started.ended === null && !isUnderWay() && performance.now() < until) await sleep(LOOK_EVERY_MS);
    if (failed) throw new RunError(started.ended ?? 'it failed');
    return { ...started };
  }
}
