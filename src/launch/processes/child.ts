/**
 * A guarded child process. It leads its own process group. Its output is read line by line, and its signs of life are
 * counted.
 */
import { spawn, type ChildProcess, type Serializable } from 'node:child_process';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { ConfigError } from '../../core/errors.js';
import { processStart } from '../../run/claim/lock.js';
import { isGroupAlive, LAUNCH_VARIABLE, markedProcesses, signalGroup, type Guardian } from './guardian.js';

/** Number of a child's last lines that are kept. */
export const TAIL_LINES = 40;
/** Milliseconds to wait for more output after a child has died, because another process may still hold its pipe. */
const DRAIN_MS = 200;
const POLL_MS = 20;
const MAX_LINE = 16_384;

export interface ChildOptions {
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** The whole environment, without the attempt's mark. */
  readonly env: NodeJS.ProcessEnv;
  readonly cwd?: string;
  /** The attempt's mark, from the guardian. */
  readonly mark: string;
  /** Whether the child is a Node process that exchanges messages with this one. */
  readonly ipc: boolean;
  /** Whether its standard input is a pipe that closes when this process ends for any reason. */
  readonly tied?: boolean;
  /** Seconds between SIGTERM and SIGKILL for processes of the group that outlive their leader. */
  readonly graceS: number;
  readonly onLine: (line: string) => void;
  readonly onMessage: (message: unknown) => void;
}

export interface ChildExit {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
}

/** A started child. The guardian watches its process group until the group is empty. */
export class GuardedChild {
  /** Its pid, which is also the id of its process group. */
  readonly pid: number;
  /** Start time of the leader, from `processStart`. Empty if unknown. */
  readonly start: string;
  /** Resolves once the leader has ended, its group is gone and its output has been read. */
  readonly ended: Promise<ChildExit>;
  #signs = 0;
  #isAlive = true;
  readonly #tail: string[] = [];
  readonly #child: ChildProcess;

  private constructor(
    child: ChildProcess,
    private readonly options: ChildOptions,
    guardian: Guardian,
  ) {
    this.#child = child;
    this.pid = child.pid as number;
    guardian.add(this.pid);
    this.start = processStart(this.pid) ?? '';
    for (const stream of [child.stdout, child.stderr]) this.#read(stream as Readable);
    child.on('message', (message) => {
      this.#signs++;
      options.onMessage(message);
    });
    // Sending to a process that has just ended raises this. Its exit is reported anyway.
    child.on('error', () => {});
    this.ended = this.#end(child, guardian);
  }

  /** Starts a command under a guardian. Raises ConfigError when the program does not exist. */
  static async start(options: ChildOptions, guardian: Guardian): Promise<GuardedChild> {
    guardian.watch();
    const [program, ...args] = options.command;
    const child = spawn(program, args, {
      env: { ...options.env, [LAUNCH_VARIABLE]: options.mark },
      ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
      stdio: [options.tied === true ? 'pipe' : 'ignore', 'pipe', 'pipe', ...(options.ipc ? (['ipc'] as const) : [])],
      detached: true,
    });
    if (child.pid !== undefined) return new GuardedChild(child, options, guardian);
    const [error] = (await once(child, 'error').catch((cause: unknown) => [cause])) as [NodeJS.ErrnoException];
    throw new ConfigError(`'${program}' cannot be started (${error.code ?? error.message})`, {
      where: 'launch.command',
      next: 'Name a program that is on the PATH, or by its whole path, and that may be executed.',
      cause: error,
    });
  }

  /** Number of signs of life so far: messages and lines of output. */
  get activity(): number {
    return this.#signs;
  }

  /** False as soon as the leader has ended. */
  get isAlive(): boolean {
    return this.#isAlive;
  }

  /** The last lines of output, oldest first. */
  get tail(): readonly string[] {
    return this.#tail;
  }

  /** Sends a message, and optionally a connection. Messages to a child that has ended are lost. */
  send(message: Serializable, connection?: Socket): void {
    if (this.#child.connected) this.#child.send(message, connection, {}, () => {});
  }

  /** Sends a signal to the whole group. */
  signal(signal: NodeJS.Signals): void {
    if (this.#isAlive) signalGroup(this.pid, signal);
  }

  async #end(child: ChildProcess, guardian: Guardian): Promise<ChildExit> {
    const closed = once(child, 'close');
    const [code, signal] = (await once(child, 'exit')) as [number | null, NodeJS.Signals | null];
    await endGroup(this.pid, this.options.graceS);
    this.#isAlive = false;
    guardian.remove(this.pid);
    const waited = new AbortController();
    const done = await Promise.race([
      closed.then(() => true),
      delay(DRAIN_MS, false, { signal: waited.signal }).catch(() => false),
    ]);
    waited.abort();
    if (!done) {
      child.stdout?.destroy();
      child.stderr?.destroy();
    }
    return { code, signal };
  }

  #read(stream: Readable): void {
    let rest = '';
    const line = (text: string): void => {
      this.#tail.push(text);
      if (this.#tail.length > TAIL_LINES) this.#tail.shift();
      this.options.onLine(text);
    };
    stream.setEncoding('utf8');
    stream.on('data', (chunk: string) => {
      this.#signs++;
      const lines = (rest + chunk).split('\n');
      rest = lines.pop() as string;
      for (const whole of lines) line(lastRewrite(whole));
      if (rest.length > MAX_LINE) {
        line(lastRewrite(rest));
        rest = '';
      }
    });
    stream.once('close', () => {
      if (rest !== '') line(lastRewrite(rest));
    });
  }
}

/** The last text of a progress bar that rewrites its line. */
function lastRewrite(line: string): string {
  const text = line.replace(/\r+$/, '');
  return text.slice(text.lastIndexOf('\r') + 1);
}

/** Ends what is left of a process group: SIGTERM, then SIGKILL. */
export async function endGroup(group: number, graceS: number): Promise<void> {
  if (!isGroupAlive(group)) return;
  signalGroup(group, 'SIGTERM');
  // A stopped process only receives SIGTERM once it continues.
  signalGroup(group, 'SIGCONT');
  const deadline = performance.now() + graceS * 1000;
  while (isGroupAlive(group)) {
    if (performance.now() > deadline) signalGroup(group, 'SIGKILL');
    await delay(POLL_MS);
  }
}

/** Ends every process with a mark, in any process group: SIGTERM, then SIGKILL. */
export async function endMarked(mark: string, graceS: number): Promise<void> {
  const deadline = performance.now() + graceS * 1000;
  let first = true;
  for (let found = markedProcesses(mark); found.length > 0; found = markedProcesses(mark)) {
    const late = performance.now() > deadline;
    for (const pid of found) {
      if (first || late) sendSignal(pid, late ? 'SIGKILL' : 'SIGTERM');
    }
    first = false;
    await delay(POLL_MS);
  }
}

function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== 'ESRCH') throw cause;
  }
}
