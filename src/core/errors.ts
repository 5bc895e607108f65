/**
 * Errors for people. Each has a stable code and reports what was found, what is allowed, where, and what to do next. The command line
 * prints `message` and `next` without a stack trace. `exitCode` is the exit code of the process.
 */

export interface ErrorDetails {
  /** The place: a file, the path of a config key, a URL. */
  readonly where?: string;
  /** Advice, as an imperative sentence. */
  readonly next?: string;
  readonly cause?: unknown;
}

/** Base of every error that editrl raises on purpose. */
export abstract class EditrlError extends Error {
  abstract readonly code: string;
  readonly exitCode: number = 1;
  readonly where: string | undefined;
  readonly next: string | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.where = details.where;
    this.next = details.next;
  }

  /** The text for a terminal: place, message, and what to do. */
  toText(): string {
    const lines = [this.where === undefined ? this.message : `${this.where}: ${this.message}`];
    if (this.next !== undefined) lines.push(`  ${this.next}`);
    return printable(lines.join('\n'));
  }
}

/**
 * Escapes control characters, except line breaks and tabs, and characters that are invisible or change the direction of text. Terminals
 * show them instead of obeying them.
 */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Wrong use of the command line. */
export class UsageError extends EditrlError {
  readonly code = 'usage';
  override readonly exitCode = 2;
}

/** A config cannot be evaluated or is invalid. */
export class ConfigError extends EditrlError {
  readonly code = 'config';
  override readonly exitCode = 2;
}

/** A dataset file is missing, unreadable or malformed. */
export class DataError extends EditrlError {
  readonly code = 'data';
}

/** A checkpoint is missing, corrupt or does not fit the model. */
export class CheckpointError extends EditrlError {
  readonly code = 'checkpoint';
}

/** The run directory cannot be claimed, read or written. */
export class RunError extends EditrlError {
  readonly code = 'run';
}

/** Another process holds the run. */
export class InUseError extends RunError {}

/** An endpoint (a judge, a server) cannot be reached or behaves incorrectly. */
export class EndpointError extends EditrlError {
  readonly code = 'endpoint';
  override readonly exitCode = 3;
}

/** The run has reached its request limit. It continues once the limit is raised. */
export class JudgeLimitError extends EndpointError {}

/** A server that the run started has ended, and its state is lost. The run resumes from its last checkpoint. */
export class ServerEndedError extends EndpointError {}

/** A model graph is wrong: shapes, dtypes, a missing gradient. */
export class GraphError extends EditrlError {
  readonly code = 'graph';
}

/** The engine cannot do this: a provider is missing, or a session failed. */
export class EngineError extends EditrlError {
  readonly code = 'engine';
}

/** An invariant of this program is broken. Always a bug in editrl. */
export class InternalError extends EditrlError {
  readonly code = 'internal';
  constructor(message: string, details: ErrorDetails = {}) {
    super(`internal: ${message}`, details);
  }
}

/** Returns the value, or raises InternalError naming `what` if it is null or undefined. */
export function must<T>(value: T | null | undefined, what: string): T {
  if (value === null || value === undefined) throw new InternalError(`${what} is missing`);
  return value;
}
