import { EditrlError } from '../../core/errors.js';
import type { RunPaths } from '../../run/paths.js';
import { RunFailed } from '../processes/failure.js';
import type { Started, Worker } from '../processes/supervise.js';
import { recordWorkers, settleState } from '../ownership/takeover.js';
import { PEER_LOST, unpackError, type ErrorMessage, type FromWorker, type RunKind } from '../worker/protocol.js';

/** What the workers of one attempt said, and how it ended. */
export class NativeAttempt {
  started: Started | null = null;
  #attempt = 0;
  #result: RunKind | null = null;
  readonly #errors = new Map<number, ErrorMessage>();

  constructor(private readonly paths: RunPaths) {}

  /** The attempt's number; 0 until rank 0 has claimed the run. */
  get number(): number {
    return this.#attempt;
  }

  /** Takes a message; true when the run has just been claimed. */
  receive({ rank }: Worker, message: FromWorker): boolean {
    switch (message.kind) {
      case 'heartbeat':
        return false;
      case 'claimed':
        this.#attempt = message.attempt;
        if (this.started !== null) recordWorkers(this.paths, this.started);
        return true;
      case 'ended':
        if (rank === 0) this.#result = message.result;
        return false;
      case 'failed':
        this.#errors.set(rank, message.error);
        return false;
    }
  }

  /** The result, or the error that says most; puts the state right where rank 0 could not. */
  async end(failure: unknown): Promise<RunKind> {
    if (failure === null && this.#errors.size === 0 && this.#result !== null) return this.#result;
    if (failure === null && this.#errors.size === 0) {
      this.#settle('interrupted', 'stopped at once');
      return 'interrupted';
    }
    const told = this.#tellingError(failure);
    if (told?.rank === 0) throw unpackError(told.error);
    const error = told === null ? failure : unpackError(told.error);
    const reason = error instanceof RunFailed ? error.reason : error instanceof Error ? error.message : String(error);
    this.#settle('failed', told === null ? reason : `rank ${told.rank}: ${reason}`);
    await this.#log(error instanceof RunFailed ? error.message : reason);
    throw error;
  }

  /** Puts into the run's log what rank 0 could not write there. */
  async #log(text: string): Promise<void> {
    if (this.#attempt === 0) return;
    const { openRunLog } = await import('../../run/logs.js');
    try {
      const log = openRunLog({ paths: this.paths, attempt: this.#attempt, rank: 0, terminal: null });
      log.logger.error(text);
      await log.close();
    } catch (refused) {
      // Where the disk refuses, the failure itself is the error to show.
      if (!(refused instanceof EditrlError)) throw refused;
    }
  }

  /** The error that a worker itself gave for its end, unless a worker was ended from outside or hung. */
  #tellingError(failure: unknown): { rank: number; error: ErrorMessage } | null {
    const all = [...this.#errors].map(([rank, error]) => ({ rank, error }));
    const own = all.filter(({ error }) => error.name !== PEER_LOST);
    if (!(failure instanceof RunFailed)) return failure === null ? (own[0] ?? all[0] ?? null) : null;
    const outside = failure.workerExitCode === null;
    return outside ? null : (own.find(({ rank }) => rank === failure.rank) ?? own[0] ?? null);
  }

  #settle(state: 'failed' | 'interrupted', reason: string): void {
    // Rank 0 may have said how it ended itself because another one had: that is not the reason.
    if (this.#attempt > 0) {
      settleState(this.paths, this.#attempt, { state, reason }, ['queued', 'running', 'waiting', 'failed']);
    }
  }
}
