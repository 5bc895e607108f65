/** A child process that answers one request at a time, for computations of unbounded time or memory that nothing else can stop. */
import { fork, type ChildProcess, type Serializable } from 'node:child_process';

/** There is no reply: the process was killed because it was late, or it ended by itself. `how` is its signal or exit code. */
export class ChildEnded extends Error {
  constructor(
    readonly how: string,
    readonly isLate: boolean,
  ) {
    super(how);
  }
}

export interface ChildOptions<Reply> {
  /** Node's flags for the process, such as a heap limit. Flags of this process, such as a debugger's port, are not inherited. */
  readonly execArgv: string[];
  readonly stderr: 'inherit' | 'ignore';
  /** The process is killed after this long without a request. */
  readonly idleMs: number;
  /** Whether to kill the process after this reply. */
  readonly isSpent?: (reply: Reply) => boolean;
}

/**
 * Starts the process for the first request, and again after it has ended. It keeps this process alive only while it works and ends with it
 * (the program must exit on `disconnect`). It has its own process group, because this process decides what Ctrl-C does.
 */
export class ChildService<Request extends Serializable, Reply> {
  #child: ChildProcess | null = null;
  #idle: NodeJS.Timeout | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(
    private readonly program: string,
    private readonly options: ChildOptions<Reply>,
  ) {}

  /** Starts the process before the first request. */
  start(): ChildProcess {
    if (this.#child !== null) return this.#child;
    const { execArgv, stderr } = this.options;
    const child = fork(this.program, [], { execArgv, stdio: ['ignore', 'ignore', stderr, 'ipc'], detached: true });
    const forget = (): void => {
      if (this.#child === child) this.#child = null;
    };
    child.on('exit', forget).on('error', forget);
    this.#child = child;
    this.#rest(child);
    return child;
  }

  #end(): void {
    this.#child?.kill('SIGKILL');
    this.#child = null;
  }

  /** Rejects with ChildEnded. A request waits for earlier ones, and its time does not include this wait. */
  ask(request: Request, withinMs: number): Promise<Reply> {
    const reply = this.#last.then(() => this.#askNow(request, withinMs));
    this.#last = reply.catch(() => undefined);
    return reply;
  }

  async #askNow(request: Request, withinMs: number): Promise<Reply> {
    const child = this.start();
    clearTimeout(this.#idle);
    child.ref();
    child.channel?.ref();
    let isLate = false;
    const timer = setTimeout(() => {
      isLate = true;
      child.kill('SIGKILL');
    }, withinMs);
    let ended: (how: string) => void = () => undefined;
    const onClose = (code: number | null, signal: string | null): void => ended(signal ?? `exit code ${code}`);
    const onError = ({ message }: Error): void => ended(message);
    try {
      const reply = await new Promise<Reply>((resolve, reject) => {
        ended = (how) => reject(new ChildEnded(how, isLate));
        child
          .once('message', (received) => resolve(received as Reply))
          .once('close', onClose)
          .once('error', onError);
        // If the process has ended, its `close` event settles the request.
        child.send(request, () => undefined);
      });
      if (this.options.isSpent?.(reply) === true) this.#end();
      return reply;
    } finally {
      clearTimeout(timer);
      child.removeAllListeners('message').off('close', onClose).off('error', onError);
      this.#rest(child);
    }
  }

  /** Restarts the idle timer. */
  #rest(child: ChildProcess): void {
    child.unref();
    child.channel?.unref();
    clearTimeout(this.#idle);
    this.#idle = setTimeout(() => this.#end(), this.options.idleMs).unref();
  }
}
