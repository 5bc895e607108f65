/** Renders chat templates in a process of their own, which a template that computes without end cannot leave. */
import { spawnSync } from 'node:child_process';
import { ChildEnded, ChildService } from '../../core/child_service.js';
import { EngineError } from '../../core/errors.js';
import { programPath } from '../../core/files.js';

/** A message to the process; each is answered by one `FromRenderer`. */
export type ToRenderer = {
  readonly source: string;
  /** The template's names and their values, as JSON. */
  readonly names: Readonly<Record<string, unknown>>;
  /** The time that the template sees, in milliseconds since 1970. */
  readonly now: number;
  readonly withinMs: number;
};

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

const program = programPath('models/chat/render_main');
/** One process for all templates. V8 writes pages about a heap that is full, which nobody needs. */
const renderer = new ChildService<ToRenderer, FromRenderer>(program, {
  execArgv: limits,
  stderr: 'ignore',
  idleMs: 60_000,
});

function textOf(said: FromRenderer, { withinMs }: ToRenderer): string {
  if (said.kind === 'late') throw new Error(`it takes longer than ${withinMs / 1000} seconds`);
  if (said.kind === 'failed') throw new Error(said.words);
  return said.text;
}

/** V8 aborts a process whose heap is full. */
function endOf(how: string): Error {
  if (['SIGABRT', 'SIGTRAP', 'exit code 134'].includes(how)) {
    return new Error(`it needs more than ${MOST_MB} MB of memory`);
  }
  return new EngineError(`the process that renders chat templates ended (${how})`, {
    next: 'Run the same command again. If it happens again, check whether memory runs out.',
  });
}

/** Renders a template. Rejects with an Error in the template's words, or with EngineError if the process is ended from outside. */
export async function renderChat(template: Rendering): Promise<string> {
  const message = { withinMs: WITHIN_MS, ...template };
  try {
    // The process itself ends a rendering that is late; its start takes time, too.
    return textOf(await renderer.ask(message, 2 * message.withinMs + WITHIN_MS), message);
  } catch (error) {
    throw error instanceof ChildEnded ? endOf(error.how) : error;
  }
}

/** As `renderChat`, in a process for this rendering alone. It is for the check before a start, which waits for it. */
export function renderChatNow(template: Rendering): string {
  const message = { withinMs: WITHIN_MS, ...template };
  const { stdout, status, signal, error } = spawnSync(process.execPath, [...limits, program], {
    input: JSON.stringify(message),
    encoding: 'utf8',
    stdio: ['pipe', 'pipe', 'ignore'],
    maxBuffer: 2 ** 26,
  });
  if (status === 0) return textOf(JSON.parse(stdout) as FromRenderer, message);
  throw error ?? endOf(signal ?? `exit code ${status}`);
}
