/** Runs Jsonnet in its own process, with limits of memory and time. Only a process can be stopped while it evaluates. */
import { ChildEnded, ChildService } from '../core/child_service.js';
import { ConfigError, EngineError, UsageError } from '../core/errors.js';
import { programPath } from '../core/files.js';

/** A request: the expression, and the limit of resident memory in bytes. */
export type Evaluate = {
  readonly snippet: string;
  /** The snippet's name in Jsonnet's messages. */
  readonly name: string;
  /** `std.extVar`s. */
  readonly variables: Readonly<Record<string, string>>;
  /** Folders to search for imports, the first one first. */
  readonly library: readonly string[];
  readonly bytes: number;
};

/** A reply: the JSON text of the value, or the reason why there is none. The process ends after 'memory'. */
export interface Evaluated {
  readonly kind: 'value' | 'refused' | 'unavailable' | 'memory';
  readonly text: string;
  /** The version of libjsonnet, such as `v0.20.0`. */
  readonly version: string;
  /** Resident memory, which libjsonnet does not free. */
  readonly bytes: number;
}

/** A message of Jsonnet. */
export class JsonnetError extends Error {
  /** @param version the version of libjsonnet, such as `v0.20.0` */
  constructor(
    message: string,
    readonly version: string,
  ) {
    super(message);
  }
}

/** An evaluation that exceeded a limit. */
export class LimitError extends ConfigError {}

export interface Limits {
  readonly megabytes: number;
  readonly seconds: number;
}

const limitVariables = {
  megabytes: { variable: 'EDITRL_JSONNET_MEMORY_MB', fallback: 1000, found: 'MB of memory' },
  seconds: { variable: 'EDITRL_JSONNET_SECONDS', fallback: 60, found: 's' },
} as const;

/** The limits of an evaluation, from the environment. Raises UsageError for a value that is not a whole number. */
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

/** A process that uses more is not reused, so that the next evaluation has the whole limit. */
const KEPT_BYTES = 200e6;

/** It is ended after a second without requests, because a long run does not need its memory. */
const interpreter = new ChildService<Evaluate, Evaluated>(programPath('config/interpreter_main'), {
  execArgv: [],
  stderr: 'inherit',
  idleMs: 1000,
  isSpent: ({ kind, bytes }) => kind === 'memory' || bytes > KEPT_BYTES,
});

/** Starts the process before the first evaluation needs it. */
export function startInterpreter(): void {
  interpreter.start();
}

/** Signals of a crash on the input. */
const crashes: readonly string[] = ['SIGSEGV', 'SIGABRT', 'SIGBUS', 'SIGILL', 'SIGFPE'];

/**
 * The JSON text of an expression's value. `file`: the place of errors without one. Raises JsonnetError for Jsonnet's own errors, LimitError, ConfigError if
 * Jsonnet crashes on the expression, and EngineError if the process fails.
 */
export async function evaluateJsonnet(
  expression: Omit<Evaluate, 'bytes'>,
  limits: Limits,
  file: string,
): Promise<string> {
  let reply: Evaluated;
  try {
    reply = await interpreter.ask({ ...expression, bytes: limits.megabytes * 1e6 }, limits.seconds * 1000);
  } catch (error) {
    if (!(error instanceof ChildEnded)) throw error;
    throw error.isLate ? beyondLimit('seconds', limits, file) : crashed(error.how, file);
  }
  if (reply.kind === 'value') return reply.text;
  if (reply.kind === 'memory') throw beyondLimit('megabytes', limits, file);
  if (reply.kind === 'refused') throw new JsonnetError(reply.text, reply.version);
  throw new EngineError(`the libjsonnet binding does not load (${reply.text.split('\n', 1)[0]})`, {
    next: 'Install cmake and a C++ compiler, then run: npm rebuild @hanazuki/node-jsonnet',
  });
}

function crashed(how: string, file: string): Error {
  if (crashes.includes(how)) {
    const next = 'Look for objects or lists that are nested thousands of levels deep.';
    return new ConfigError(`Jsonnet crashed on this file (${how})`, { where: file, next });
  }
  return new EngineError(`the process that evaluates Jsonnet ended (${how})`, {
    next: 'Check whether memory ran out, then run the same command again.',
  });
}

function beyondLimit(what: keyof Limits, limits: Limits, file: string): LimitError {
  const { variable, found } = limitVariables[what];
  return new LimitError(`the evaluation exceeds the limit of ${limits[what]} ${found}`, {
    where: file,
    next: `Look for a value that grows without end or a function that calls itself. Raise the limit with: export ${variable}=${2 * limits[what]}`,
  });
}
