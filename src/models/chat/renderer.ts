/** Renders chat templates in a process of their own, which a template that computes without end cannot leave. */
import { fork, spawnSync, type ChildProcess } from 'node:child_process';
import { EngineError } from '../../core/errors.js';
import { renderProgram } from './render_program.js';

/** A message to the process; each is answered by one `FromRenderer`. */
export interface ToRenderer {
  readonly source: string;
  /** The template's names and their values, as JSON. */
  readonly names: Readonly<Record<string, unknown>>;
  /** The time that the template sees, in milliseconds since 1970. */
  readonly now: number;
  readonly withinMs: number;
}

/** `withinMs` is 10,000 by default. */
export type Rendering = Omit<ToRenderer, 'withinMs'> & Partial<ToRenderer>;

export type FromRenderer =
  | { readonly kind: 'text'; readonly text: string }
  /** The template, or its evaluation, refuses. */
  | { readonly kind: 'failed'; readonly words: string }
  | { readonly kind: 'late' };

/** A conversation takes one or two milliseconds. */
const WITHIN_MS = 10_000;
const MOST_MB = 256;
const limits = [`--max-old-space-size=${MOST_MB}`, '--max-semi-space-size=16'];

/** One process for all templates, started for the first rendering. It keeps this process alive only while it renders. */
class Renderer {
  #child: ChildProcess | null = null;
  #last: Promise<unknown> = Promise.resolve();
  #hear: (said: FromRenderer | Ended) => void = () => undefined;

  /** The text. Rejects with an Error that says why there is none. */
  render(message: ToRenderer): Promise<string> {
    // One at a time: a process that is out of memory ends the rendering that is to blame, and no other.
    const text = this.#last.then(() => this.#ask(message));
    this.#last = text.catch(() => undefined);
    return text;
  }

  async #ask(message: ToRenderer): Promise<string> {
    const child = (this.#child ??= this.#start());
    child.ref();
    child.channel?.ref();
    const said = await new Promise<FromRenderer | Ended>((resolve) => {
      this.#hear = resolve;
      // The end of a process that is gone settles the rendering.
      child.send(message, () => undefined);
    });
    child.unref();
    child.channel?.unref();
    return textOf(said, message);
  }

  #start(): ChildProcess {
    const child = fork(renderProgram, [], {
      execArgv: limits,
      // V8 writes pages about a heap that is full.
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
      // A process group of its own: this process decides what Ctrl-C means.
      detached: true,
    });
    const ended = (error: Error): void => {
      if (this.#child === child) this.#child = null;
      this.#hear({ kind: 'ended', error });
    };
    child.on('message', (said: FromRenderer) => this.#hear(said));
    child.on('error', ended);
    child.once('close', (code, signal) => ended(endOf(code, signal)));
    return child;
  }
}

interface Ended {
  readonly kind: 'ended';
  readonly error: Error;
}

function textOf(said: FromRenderer | Ended, { withinMs }: ToRenderer): string {
  if (said.kind === 'ended') throw said.error;
  if (said.kind === 'late') throw new Error(`it takes longer than ${withinMs / 1000} seconds`);
  if (said.kind === 'failed') throw new Error(said.words);
  return said.text;
}

/** V8 aborts a process whose heap is full. */
function endOf(code: number | null, signal: NodeJS.Signals | null): Error {
  if (signal === 'SIGABRT' || signal === 'SIGTRAP' || code === 134) {
    return new Error(`it needs more than ${MOST_MB} MB of memory`);
  }
  return new EngineError(`the process that renders chat templates ended (${signal ?? `exit code ${String(code)}`})`, {
    next: 'Run the same command again. If it happens again, check whether memory runs out.',
  });
}

const renderer = new Renderer();

/** Renders a template. Rejects with an Error in the template's words, or with EngineError if the process is ended from outside. */
export function renderChat(template: Rendering): Promise<string> {
  return renderer.render({ withinMs: WITHIN_MS, ...template });
}

/** As `renderChat`, in a process for this rendering alone. It is for the check before a start, which waits for it. */
export function renderChatNow(template: Rendering): string {
  const message = { withinMs: WITHIN_MS, ...template };
  const { stdout, status, signal, error } = spawnSync(process.execPath, [...limits, renderProgram], {
    input: JSON.stringify(message),
    encoding: 'utf8',
    stdio: ['pipe', 'pipe', 'ignore'],
    maxBuffer: 2 ** 26,
  });
  if (status === 0) return textOf(JSON.parse(stdout) as FromRenderer, message);
  throw error ?? endOf(status, signal);
}
