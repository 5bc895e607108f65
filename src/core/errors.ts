/**
 * Errors that a person reads. Each has a stable code, says what was found, what is allowed, where, and what to do next.
 * The command line prints `message` and `next` without a stack trace; `exitCode` is the process's exit code.
 */

export interface ErrorDetails {
  /** Where it happened: a file, a config key's path, a URL. */
  readonly where?: string;
  /** What the reader can do about it, as an imperative sentence. */
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

  /** The text for a terminal: message, place, and what to do. */
  toText(): string {
    const lines = [this.where === undefined ? this.message : `${this.where}: ${this.message}`];
    if (this.next !== undefined) lines.push(`  ${this.next}`);
    return printable(lines.join('\n'));
  }
}

/**
 * Text with its control characters spelled out, but for line breaks and tabs, and those that turn the direction of the text around them or cannot be
 * seen: what an input holds is shown, and not obeyed by a terminal.
 */
export function printable(text: string): string {
  return text.replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g,
    (found) => `\\u${found.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** The command line was used incorrectly. */
export class UsageError extends EditrlError {
  readonly code = 'usage';
  override readonly exitCode = 2;
}

/** A config does not evaluate or does not validate. */
export class ConfigError extends EditrlError {
  readonly code = 'config';
  override readonly exitCode = 2;
}

/** A dataset file is missing, unreadable or of the wrong form. */
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

/** An endpoint (a judge, a server) cannot be reached or is not what it should be. */
export class EndpointError extends EditrlError {
  readonly code = 'endpoint';
  override readonly exitCode = 3;
}

/** A run has used up what its settings allow it to ask for: it goes on from where it is once they allow more. */
export class JudgeLimitError extends EndpointError {}

/** A server of the run's own has ended, and with it what the run had there: the run goes on from its last checkpoint. */
export class ServerEndedError extends EndpointError {}

/** A model graph is wrong: shapes, dtypes, a missing gradient. */
export class GraphError extends EditrlError {
  readonly code = 'graph';
}

/** The engine cannot do what was asked: a provider that is missing, a session that fails. */
export class EngineError extends EditrlError {
  readonly code = 'engine';
}

/** One of this program's own invariants is broken; always a bug in editrl. */
export class InternalError extends EditrlError {
  readonly code = 'internal';
  constructor(message: string, details: ErrorDetails = {}) {
    super(`internal: ${message}`, details);
  }
}

/** Narrows away null and undefined, or raises an InternalError that says what was missing. */
export function must<T>(value: T | null | undefined, what: string): T {
  if (value === null || value === undefined) throw new InternalError(`${what} is missing`);
  return value;
}
