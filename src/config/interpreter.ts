/**
 * Jsonnet in a process of its own: an expression may ask for any amount of memory and time, and a thread that computes cannot be ended.
 * The process is started when something is evaluated, kept while more follows, and ended when nothing does.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { ConfigError, EngineError, InternalError, UsageError } from '../core/errors.js';
import { interpreterProgram } from './interpreter_program.js';

/** What the process is told. */
export type ToInterpreter =
  Evaluate | { readonly kind: 'answer'; readonly value: unknown } | { readonly kind: 'failure'; readonly text: string };

export interface Evaluate {
  readonly kind: 'evaluate';
  readonly snippet: string;
  /** What Jsonnet calls the snippet in its messages. */
  readonly name: string;
  /** `std.extVar`s. */
  readonly variables: Readonly<Record<string, string>>;
  /** Names of `std.native`s, each of one text, which are asked for by `call`. */
  readonly natives: readonly string[];
  /** Resident memory of the process, and how long it computes. */
  readonly limits: { readonly bytes: number; readonly ms: number };
}

/** What the process says. Every `evaluate` is answered by one that is no `call`; after `beyond` the process ends. */
export type FromInterpreter =
  | { readonly kind: 'call'; readonly native: string; readonly text: string }
  /** The JSON text of the value, and the memory that the process holds now. */
  | { readonly kind: 'value'; readonly text: string; readonly bytes: number }
  | { readonly kind: 'refused'; readonly text: string }
  | { readonly kind: 'unavailable'; readonly text: string }
  | { readonly kind: 'beyond'; readonly what: 'memory' | 'time' };

/** Jsonnet's own message. */
export class Refused extends Error {}

/** An evaluation that took more than it may. */
export class LimitError extends ConfigError {}

export interface Expression extends Pick<Evaluate, 'snippet' | 'name' | 'variables'> {
  /** What errors that name no place are said of. */
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

/** What an evaluation may take, as the environment says. Raises UsageError where that is no whole number. */
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

/** A process that is idle for so long is ended. */
const IDLE_MS = 1000;
/** A process that holds more is not kept: libjsonnet does not give memory back, and the next evaluation has the whole limit. */
const KEPT_BYTES = 200e6;
/** How a process ends whose code has broken down over what it was given. */
const crashes: readonly (NodeJS.Signals | null)[] = ['SIGSEGV', 'SIGABRT', 'SIGBUS', 'SIGILL', 'SIGFPE'];

export class Interpreter {
  #child: ChildProcess | null = null;
  /** Told what the process says. */
  #hear: (said: Result) => void = () => undefined;
  #idle: NodeJS.Timeout | undefined;
  /** One evaluation at a time, so that it is known which of them takes too much. */
  #turn: Promise<unknown> = Promise.resolve();

  /**
   * The JSON text of an expression's value. Raises Refused for everything that Jsonnet refuses, LimitError, ConfigError for an
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
        // The end of a process that has said why is waited for, so that nothing is left of it.
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

  /** The process, which keeps this one alive while it works. */
  #ready(): ChildProcess {
    clearTimeout(this.#idle);
    this.#child ??= this.#start();
    this.#child.ref();
    this.#child.channel?.ref();
    return this.#child;
  }

  #start(): ChildProcess {
    const child = fork(interpreterProgram, [], {
      // Flags of this process, such as a debugger's port, are not for that one.
      execArgv: [],
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
      // A process group of its own: what Ctrl-C means is this process's to say.
      detached: true,
    });
    const ended = (signal: NodeJS.Signals | null, how: string): void => {
      // One that was let go says nothing of the one in its place.
      if (this.#child !== child) return;
      this.#child = null;
      this.#hear({ kind: 'ended', signal, how });
    };
    child.on('message', (said: FromInterpreter) => this.#hear(said));
    child.once('error', (error) => ended(null, error.message));
    // Said once all its messages are read.
    child.once('close', (code, signal) => ended(signal, signal ?? `exit code ${code}`));
    return child;
  }

  #rest(child: ChildProcess, bytes: number): void {
    child.unref();
    child.channel?.unref();
    if (bytes > KEPT_BYTES) this.#release(child);
    else this.#idle = setTimeout(() => this.#release(child), IDLE_MS).unref();
  }

  /** Lets a process go: without a channel it ends. */
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
      return new Refused(result.text);
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
