/**
 * Runs Jsonnet in its own process, with limits: an evaluation may take any amount of memory and time, and a computing thread cannot be stopped. One
 * process serves one evaluation after the other. It ends when it is idle, and with this one.
 */
import { fork, type ChildProcess } from 'node:child_process';
import { ConfigError, EngineError, UsageError } from '../core/errors.js';
import { interpreterProgram } from './interpreter_program.js';

/** What the process evaluates, and the resident memory that it may use, in bytes. */
export interface Evaluate {
  readonly snippet: string;
  /** The snippet's name in Jsonnet's messages. */
  readonly name: string;
  /** `std.extVar`s. */
  readonly variables: Readonly<Record<string, string>>;
  readonly bytes: number;
}

/** What the process answers: the JSON text of the value, or why there is none. After 'memory' it ends. */
export interface Evaluated {
  readonly kind: 'value' | 'refused' | 'unavailable' | 'memory';
  readonly text: string;
  /** The version of libjsonnet, such as `v0.20.0`. */
  readonly version: string;
  /** Resident memory, which libjsonnet does not give back. */
  readonly bytes: number;
}

/** Jsonnet's own message. */
export class JsonnetError extends Error {
  /** @param version the version of libjsonnet, such as `v0.20.0` */
  constructor(
    message: string,
    readonly version: string,
  ) {
    super(message);
  }
}

/** An evaluation that took more than it may. */
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

/** A process without an evaluation for so long is ended: a run that trains for days does not need its memory. */
const IDLE_MS = 1000;

let process_: ChildProcess | null = null;
let idle: NodeJS.Timeout | undefined;
let turn: Promise<unknown> = Promise.resolve();

/** Starts the process, so that it is ready when the first evaluation comes. */
export function startInterpreter(): ChildProcess {
  if (process_ !== null) return process_;
  // Flags of this process, such as a debugger's port, are not passed on. In a group of its own Ctrl-C does not reach it.
  const stdio = ['ignore', 'ignore', 'inherit', 'ipc'] as const;
  const child = fork(interpreterProgram, [], { execArgv: [], stdio: [...stdio], detached: true });
  const forget = (): void => {
    if (process_ === child) process_ = null;
  };
  child.once('exit', forget).once('error', forget);
  child.unref();
  child.channel?.unref();
  process_ = child;
  endWhenIdle();
  return child;
}

/** Counts the idle time from now on. */
function endWhenIdle(): void {
  clearTimeout(idle);
  idle = setTimeout(endInterpreter, IDLE_MS).unref();
}

function endInterpreter(): void {
  process_?.kill('SIGKILL');
  process_ = null;
}

/**
 * The JSON text of an expression's value. `file` is named in errors without a place. Raises JsonnetError for everything that Jsonnet refuses,
 * LimitError, ConfigError if Jsonnet crashes on the expression, and EngineError if the process cannot do its work.
 */
export function evaluateJsonnet(expression: Omit<Evaluate, 'bytes'>, limits: Limits, file: string): Promise<string> {
  const evaluated = turn.then(() => evaluateNow(expression, limits, file));
  turn = evaluated.catch(() => undefined);
  return evaluated;
}

/** A process that uses more is not kept, so that the next evaluation has the whole limit. */
const KEPT_BYTES = 200e6;

/** Signals that mean that the process crashed on its input. */
const crashes: readonly unknown[] = ['SIGSEGV', 'SIGABRT', 'SIGBUS', 'SIGILL', 'SIGFPE'];

async function evaluateNow(expression: Omit<Evaluate, 'bytes'>, limits: Limits, file: string): Promise<string> {
  const child = startInterpreter();
  clearTimeout(idle);
  child.ref();
  child.channel?.ref();
  let beyond: keyof Limits | null = null;
  let hear: (said: Evaluated) => void = () => undefined;
  let end: (how: string) => void = () => undefined;
  const onClose = (code: number | null, signal: NodeJS.Signals | null): void => end(signal ?? `exit code ${code}`);
  const onError = (error: Error): void => end(error.message);
  const ended = new Promise<string>((resolve) => (end = resolve));
  const answered = new Promise<Evaluated>((resolve) => {
    hear = (said) => {
      if (said.kind === 'memory') beyond = 'megabytes';
      else resolve(said);
    };
  });
  child.on('message', hear).once('close', onClose).once('error', onError);
  const timer = setTimeout(() => {
    beyond = 'seconds';
    child.kill('SIGKILL');
  }, limits.seconds * 1000);
  child.send({ ...expression, bytes: limits.megabytes * 1e6 } satisfies Evaluate, () => undefined);
  const result = await Promise.race([answered, ended]);
  clearTimeout(timer);
  child.off('message', hear).off('close', onClose).off('error', onError);
  child.unref();
  child.channel?.unref();
  if (typeof result !== 'string' && result.bytes > KEPT_BYTES) endInterpreter();
  else endWhenIdle();
  if (typeof result === 'string') throw beyond === null ? crashed(result, file) : beyondLimit(beyond, limits, file);
  if (result.kind === 'value') return result.text;
  if (result.kind === 'refused') throw new JsonnetError(result.text, result.version);
  throw new EngineError(`the libjsonnet binding does not load (${result.text.split('\n', 1)[0]})`, {
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
  return new LimitError(`its evaluation takes more than ${limits[what]} ${found}, which is the limit`, {
    where: file,
    next: `Look for a value that grows without end or a function that calls itself. Raise the limit with: export ${variable}=${2 * limits[what]}`,
  });
}
