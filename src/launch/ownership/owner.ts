/** A process as the owner of a run: from its claim to its end. */
import { EditrlError, EndpointError, ServerEndedError } from '../../core/errors.js';
import type { ClaimRequest, RunHandle } from '../../run/claim.js';
import type { RunLog } from '../../run/logs.js';
import { claimWhenFree } from './takeover.js';

/** A claimed run. */
export interface OwnedRun {
  readonly handle: RunHandle;
  /** Rank 0's log. */
  readonly log: RunLog;
  /** Aborted when another process has taken the run, or the disk refuses its lock. */
  readonly lost: AbortSignal;
}

export interface OwnerOptions {
  /** Shows the log's lines to a person. */
  readonly terminal: (line: string) => void;
  /** An error in the form for the run's state and its log. */
  readonly describe: (error: unknown) => { readonly reason: string; readonly stack: string };
  /** Called when its state says how it ended, before the log is closed. */
  readonly onEnd: () => void;
}

/**
 * Claims a run and works on it while keeping its lock alive; then releases it. A failure is recorded (as an interruption if a server stayed away) and
 * raised. Does no work if the run is finished. Raises what claiming raises, and why the run was lost.
 */
export async function ownRun<T>(
  request: ClaimRequest,
  { terminal, describe, onEnd }: OwnerOptions,
  work: (owned: OwnedRun) => Promise<T>,
): Promise<T | 'already_finished'> {
  const handle = await claimWhenFree(request);
  if (handle.kind === 'finished') return 'already_finished';
  const { openRunLog } = await import('../../run/logs.js');
  const log = openRunLog({ paths: handle.paths, attempt: handle.attempt, rank: 0, terminal });
  const lost = new AbortController();
  handle.startHeartbeat((error) => lost.abort(error));
  try {
    const result = await work({ handle, log, lost: lost.signal });
    lost.signal.throwIfAborted();
    return result;
  } catch (error) {
    lost.signal.throwIfAborted();
    const { reason, stack } = describe(error);
    log.logger.debug(stack);
    const stayedAway = error instanceof EndpointError && !(error instanceof ServerEndedError);
    recordEnd(handle, stayedAway ? 'interrupted' : 'failed', reason);
    throw error;
  } finally {
    onEnd();
    handle.release();
    await log.close();
  }
}

/** On a full disk, not even the state can be written: the error that the run ended with is then the one to show. */
function recordEnd(handle: RunHandle, state: 'interrupted' | 'failed', reason: string): void {
  try {
    handle.setState({ state, reason });
  } catch (error) {
    if (!(error instanceof EditrlError)) throw error;
  }
}
