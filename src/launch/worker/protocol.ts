/** Messages between a launcher and its own workers. Everything is plain JSON. */
import type { LoadedConfig } from '../../config/load.js';
import {
  CheckpointError,
  ConfigError,
  DataError,
  EditrlError,
  EndpointError,
  EngineError,
  GraphError,
  InternalError,
  InUseError,
  JudgeLimitError,
  RunError,
  ServerEndedError,
  UsageError,
  type ErrorDetails,
} from '../../core/errors.js';
import { openFilesAdvice, saysTooManyFiles } from '../../core/process.js';
import type { JudgeAddress } from '../../rewards/judge/endpoints.js';
import type { LentRun } from '../../run/claim/claim.js';
import type { ServerAddress, StartedTrainer } from '../../train/context.js';
import type { PlacedPart } from '../machine/placement.js';
import { memoryAdvice } from '../processes/failure.js';

/** How a run ended if it did not fail. */
export type RunKind = 'finished' | 'already_finished' | 'interrupted';

/** Addresses of a run's servers. Null for servers that it does not have. */
export interface RunServers {
  readonly judge: JudgeAddress | null;
  /** A sampling server that was started with the run. */
  readonly sampler: ServerAddress | null;
  /** A training server that was started with the run. */
  readonly trainer: StartedTrainer | null;
}

export type ToWorker =
  | {
      readonly kind: 'start';
      readonly config: LoadedConfig;
      /** The run, which the launcher has claimed. Rank 0 uses it. */
      readonly run: LentRun;
      /** CPU threads of this rank. 0 means all. */
      readonly threads: number;
      /** The visible GPU of each part. Absent if the settings name none. */
      readonly places?: Partial<Record<PlacedPart, number>>;
    }
  | { readonly kind: 'servers'; readonly servers: RunServers }
  /** A server did not start, or ended after `servers`. Sent to rank 0 like `servers`. */
  | { readonly kind: 'server_lost'; readonly error: ErrorMessage }
  /** Save a checkpoint and end. */
  | { readonly kind: 'stop' }
  /** End at once, because another rank has failed. */
  | { readonly kind: 'end' };

export type FromWorker =
  | { readonly kind: 'heartbeat' }
  | { readonly kind: 'ended'; readonly result: RunKind }
  | { readonly kind: 'failed'; readonly error: ErrorMessage };

/** An error sent from one process to another. */
export interface ErrorMessage {
  /** The name of its class. */
  readonly name: string;
  readonly message: string;
  readonly where?: string;
  readonly next?: string;
  readonly stack?: string;
}

/** The error of a rank that another rank has abandoned. The other rank's error is more useful. */
export const PEER_LOST = 'ProcessGroupError';

type ErrorClass = new (message: string, details?: ErrorDetails) => EditrlError;

const CLASSES: Readonly<Record<string, ErrorClass>> = {
  UsageError,
  ConfigError,
  DataError,
  CheckpointError,
  RunError,
  InUseError,
  EndpointError,
  JudgeLimitError,
  ServerEndedError,
  GraphError,
  EngineError,
  [PEER_LOST]: RunError,
};

/** Packs an error for another process. The message includes `rank`, the rank of this worker, if memory ran out. */
export function packError(error: unknown, rank: number | null = null): ErrorMessage {
  if (!(error instanceof Error)) return { name: 'Error', message: String(error) };
  const { stack } = error;
  return { ...(outOfMemoryError(error, rank) ?? detailsOf(error)), ...(stack === undefined ? {} : { stack }) };
}

type ErrorFields = Pick<ErrorMessage, 'name' | 'message' | 'where' | 'next'>;

function detailsOf(error: Error): ErrorFields {
  const { name, message } = error;
  const few = saysTooManyFiles(error) ? openFilesAdvice() : undefined;
  // Packed as an error with advice, because other errors are shown with a stack trace.
  if (!(error instanceof EditrlError)) {
    return few === undefined ? { name, message } : { name: 'RunError', message, next: few };
  }
  const { where, next = few } = error;
  return {
    name: revivableName(error),
    message,
    ...(where === undefined ? {} : { where }),
    ...(next === undefined ? {} : { next }),
  };
}

/** The name of the error's class, or of the nearest superclass that the other process can create. */
function revivableName(error: EditrlError): string {
  for (let at: unknown = error.constructor; typeof at === 'function'; at = Object.getPrototypeOf(at)) {
    if (Object.hasOwn(CLASSES, at.name)) return at.name;
  }
  return error.name;
}

/** An error with advice for a failed allocation in the engine or the runtime. Null for any other error. */
function outOfMemoryError(error: Error, rank: number | null): ErrorFields | null {
  if (error instanceof EditrlError && !(error instanceof EngineError)) return null;
  const next = memoryAdvice(error.message);
  if (next === null) return null;
  const who = rank === null ? '' : `rank ${rank} `;
  return { name: 'EngineError', message: `${who}ran out of memory: ${error.message}`, next };
}

/** Recreates the error in this process: its class, message, place and advice, and the other process's stack. */
export function unpackError(packed: ErrorMessage): Error {
  const details = {
    ...(packed.where === undefined ? {} : { where: packed.where }),
    ...(packed.next === undefined ? {} : { next: packed.next }),
  };
  const error = reviveError(packed, details);
  if (packed.stack !== undefined) error.stack = packed.stack;
  return error;
}

function reviveError({ name, message }: ErrorMessage, details: ErrorDetails): Error {
  if (name === 'InternalError') return new InternalError(message.replace(/^internal: /, ''), details);
  const known = Object.hasOwn(CLASSES, name) ? CLASSES[name] : undefined;
  if (known !== undefined) return new known(message, details);
  const error = new Error(message);
  error.name = name;
  return error;
}
