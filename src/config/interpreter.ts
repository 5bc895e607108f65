/**
 * Runs Jsonnet in its own process: an expression may take any amount of memory and time, and a computing thread cannot be stopped. The process is
 * started for the first evaluation, kept while more follow, and ended when idle.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { ConfigError, EngineError, InternalError, UsageError } from '../core/errors.js';
import { interpreterProgram } from './interpreter_program.js';

/** A message to the process. */
export type ToInterpreter =
  Evaluate | { readonly kind: 'answer'; readonly value: unknown } | { readonly kind: 'failure'; readonly text: string };

export interface Evaluate {
  readonly kind: 'evaluate';
  readonly snippet: string;
  /** The snippet's name in Jsonnet's messages. */
  readonly name: string;
  /** `std.extVar`s. */
  readonly variables: Readonly<Record<string, string>>;
  /** Names of `std.native`s, each taking one text, which the process requests by `call`. */
  readonly natives: readonly string[];
  /** Limits for the process's resident memory and its computing time. */
  readonly limits: { readonly bytes: number; readonly ms: number };
}

/** A message from the process. Every `evaluate` is answered by one that is not a `call`; after `beyond` the process ends. */
export type FromInterpreter =
  | { readonly kind: 'call'; readonly native: string; readonly text: string }
  /** The JSON text of the value, and the memory that the process now uses. */
  | { readonly kind: 'value'; readonly text: string; readonly bytes: number }
  | { readonly kind: 'refused'; readonly text: string }
  | { readonly kind: 'unavailable'; readonly text: string }
  | { readonly kind: 'beyond'; readonly what: 'memory' | 'time' };

/** Jsonnet's own message. */
export class JsonnetError extends Error {}

/** An evaluation that took more than it may. */
export class LimitError extends ConfigError {}

export interface Expression extends Pick<Evaluate, 'snippet' | 'name' | 'variables'> {
  /** The place named in errors that have none. */
  readonly file: string;
  readonly natives: Readonly<Record<string, (text: string) => unknown>>;
  readonly limits: Limits;
}

export interface Limits {
  readonly megabytes: number;
  readonly seconds: number;
}

const limitVariables = {
  megabytes: { variable: 'EDITRL_JSONNET_MEMORY_MB', fallback: 4000 },
  seconds: { variable: 'EDITRL_JSONNET_SECONDS', fallback: 120 },
} as const;

/** The limits of an evaluation, from the environment. Raises UsageError when a value is not a whole number. */
export function limitsOf(environment: Readonly<Record<string, string | undefined>>): Limits {
  const limit = (of: keyof Limits): number => {
    const { variable, fallback } = limitVariables[of];
    const text = environment[variable] ?? '';
    if (text === '') return fallback;
    if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
    throw new UsageError(`${variable}: found ${text}; allowed: a whole number >= 1`);
  };
  return { megabytes: limit('megabytes'), seconds: limit('seconds') };
}

/** An idle process is ended after this time. */
const IDLE_MS = 1000;
/** A process using more is not kept: libjsonnet does not free memory, and the next evaluation gets the whole limit. */
const KEPT_BYTES = 200e6;
/** Signals that mean the process crashed on its input. */
const crashes: readonly (NodeJS.Signals | null)[] = ['SIGSEGV', 'SIGABRT', 'SIGBUS', 'SIGILL', 'SIGFPE'];

export class Interpreter {
  #child: ChildProcess | null = null;
  /** Receives the process's answer. */
  #hear: (said: Result) => void = () => undefined;
  #idle: NodeJS.Timeout | undefined;
  /** One evaluation at a time, so that it is clear which one takes too much. */
  #turn: Promise<unknown> = Promise.resolve();

  /**
   * The JSON text of an expression's value. Raises JsonnetError for everything that Jsonnet refuses, LimitError, ConfigError for an
   * expression that Jsonnet breaks down over, what a native throws, and EngineError where the process cannot do its work.
   */
  evaluate(expression: Expression): Promise<string> {
    const evaluated = this.#turn.then(() => this.#evaluate(expression));
    this.#turn = evaluated.catch(() => undefined);
    return evaluated;
  }

  async #evaluate({ file, snippet, name, variables, natives, limits }: Expression): Promise<string> {
    const child = this.#ready();
    const tell = (said: ToInterpreter): void => void child.send(said, () => undefined);
    const thrown: Error[] = [];
    const answer = (native: string, text: string): ToInterpreter => {
      try {
        return { kind: 'answer', value: natives[native](text) };
      } catch (error) {
        thrown.push(error instanceof Error ? error : new InternalError(String(error)));
        return { kind: 'failure', text: 'a native function failed' };
      }
    };
    const { megabytes, seconds } = limits;
    const result = await new Promise<Result>((resolve) => {
      let beyond: FromInterpreter | null = null;
      this.#hear = (said) => {
        if (said.kind === 'call') tell(answer(said.native, said.text));
        else if (said.kind === 'beyond') beyond = said;
        // Waits for the end of a process that has reported a limit, so that nothing is left of it.
        else resolve(beyond ?? said);
      };
      tell({
        kind: 'evaluate',
        snippet,
        name,
        variables,
        natives: Object.keys(natives),
        limits: { bytes: megabytes * 1e6, ms: seconds * 1000 },
      });
    });
    this.#rest(child, result.kind === 'value' ? result.bytes : 0);
    if (thrown.length > 0) throw thrown[0];
    if (result.kind === 'value') return result.text;
    throw failure(result, file, limits);
  }

  /** The process; it keeps this one alive while it works. */
  #ready(): ChildProcess {
    clearTimeout(this.#idle);
    this.#child ??= this.#start();
    this.#child.ref();
    this.#child.channel?.ref();
    return this.#child;
  }

  #start(): ChildProcess {
    const child = fork(interpreterProgram, [], {
      // Flags of this process, such as a debugger's port, must not be passed on.
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      // A process group of its own: this process decides what Ctrl-C means.
      detached: true,
    });
    const ended = (signal: NodeJS.Signals | null, how: string): void => {
      // A process that was released must not affect its successor.
      if (this.#child !== child) return;
      this.#child = null;
      this.#hear({ kind: 'ended', signal, how });
    };
    child.on('message', (said: FromInterpreter) => this.#hear(said));
    child.once('error', (error) => ended(null, error.message));
    // Emitted once all its messages are read.
    child.once('close', (code, signal) => ended(signal, signal ?? `exit code ${code}`));
    return child;
  }

  #rest(child: ChildProcess, bytes: number): void {
    child.unref();
    child.channel?.unref();
    if (bytes > KEPT_BYTES) this.#release(child);
    else this.#idle = setTimeout(() => this.#release(child), IDLE_MS).unref();
  }

  /** Releases a process: without a channel it ends. */
  #release(child: ChildProcess): void {
    if (this.#child !== child) return;
    this.#child = null;
    if (child.connected) child.disconnect();
  }
}

type Result = FromInterpreter | Ended;

interface Ended {
  readonly kind: 'ended';
  readonly signal: NodeJS.Signals | null;
  readonly how: string;
}

function failure(result: Exclude<Result, { kind: 'value' }>, file: string, limits: Limits): Error {
  switch (result.kind) {
    case 'refused':
      return new JsonnetError(result.text);
    case 'beyond':
      return beyondLimit(result.what, file, limits);
    case 'unavailable':
      return new EngineError(`the libjsonnet binding does not load (${result.text.split('\n', 1)[0]})`, {
        next: 'Install cmake and a C++ compiler, then run: npm rebuild @hanazuki/node-jsonnet',
      });
    case 'ended':
      if (crashes.includes(result.signal)) {
        return new ConfigError(`Jsonnet breaks down over it (${result.how})`, {
          where: file,
          next: 'Look for what is nested thousands of levels deep.',
        });
      }
      return new EngineError(`the process that evaluates Jsonnet has ended (${result.how})`, {
        next: 'Look whether memory runs out; then run the same command again.',
      });
    case 'call':
      throw new InternalError('a call is no result');
  }
}

function beyondLimit(what: 'memory' | 'time', file: string, { megabytes, seconds }: Limits): LimitError {
  const { found, suspect, of, twice } = {
    memory: {
      found: `takes more than ${megabytes} MB of memory`,
      suspect: 'what grows without end, such as a text that is doubled again and again',
      of: 'megabytes' as const,
      twice: 2 * megabytes,
    },
    time: {
      found: `takes more than ${seconds} s`,
      suspect: 'what goes on without end, such as a function that calls itself',
      of: 'seconds' as const,
      twice: 2 * seconds,
    },
  }[what];
  return new LimitError(`its evaluation ${found}, which is the limit`, {
    where: file,
    next: `Look for ${suspect}. What rightly takes more gets it by: export ${limitVariables[of].variable}=${twice}`,
  });
}
