/** One attempt with another trainer's program: this process owns the run, and writes what its own workers would. */
import type { LoadedConfig } from '../../config/load.js';
import { EditrlError, EndpointError } from '../../core/errors.js';
import type { RunHandle } from '../../run/claim.js';
import { claimRequest, type AttemptContext } from '../../run/claim_request.js';
import type { Placement } from '../machine/devices.js';
import { RunFailed } from '../processes/failure.js';
import type { Guardian } from '../processes/guardian.js';
import type { View } from '../live/view.js';
import { StopWatch } from '../ownership/stop_watch.js';
import { claimWhenFree, endLeftovers, recordWorkers } from '../ownership/takeover.js';
import type { TrackedAttempt } from '../trackings.js';
import type { RunKind } from '../worker/protocol.js';

export interface ForeignAttempt {
  /** What the run's record says of this attempt. */
  readonly context: AttemptContext;
  readonly tracked: TrackedAttempt;
  readonly guardian: Guardian;
  readonly view: View;
  readonly placement: Placement;
  readonly processes: number;
  /** Asks the trainer to save and end. */
  readonly stop: AbortSignal;
  /** Ends it at once. */
  readonly kill: AbortSignal | undefined;
  /** Told that the run is this attempt's. */
  readonly onClaimed: () => void;
}

/** Claims the run and trains it to its end. Raises what is in the way, and RunFailed where the program fails. */
export async function foreignAttempt(config: LoadedConfig, attempt: ForeignAttempt): Promise<RunKind> {
  const { tracked, guardian, view, placement, processes, kill } = attempt;
  const { run_name } = config.settings;
  const handle = await claimWhenFree(claimRequest(config, attempt.context));
  if (handle.kind === 'finished') return 'already_finished';
  attempt.onClaimed();
  const { openRunLog } = await import('../../run/logs.js');
  const heard = (line: string): void => view.heard(run_name, line);
  const log = openRunLog({ paths: handle.paths, attempt: handle.attempt, rank: 0, terminal: heard });
  const lost = new AbortController();
  handle.startHeartbeat((error) => lost.abort(error));
  const asked = new StopWatch(handle.paths);
  try {
    tracked.begin((line, level) => void log.logger.log(level, line));
    await endLeftovers(handle.paths);
    for (const note of handle.notes) log.logger.info(note);
    const { runCommand } = await import('./command.js');
    return await runCommand(config, handle, {
      log,
      guardian,
      placement,
      processes,
      stop: AbortSignal.any([attempt.stop, asked.stop, tracked.stop]),
      kill: AbortSignal.any([lost.signal, asked.kill, ...(kill === undefined ? [] : [kill])]),
      onStarted: (started) => {
        tracked.workers = started.workers;
        recordWorkers(handle.paths, started);
      },
      onOutput: (line) => view.output(run_name, line),
    });
  } catch (error) {
    if (lost.signal.aborted) throw lost.signal.reason as Error;
    log.logger.debug(error instanceof Error ? (error.stack ?? error.message) : String(error));
    recordFailure(handle, error);
    throw error;
  } finally {
    asked.close();
    tracked.end();
    handle.release();
    await log.close();
  }
}

function recordFailure(handle: RunHandle, error: unknown): void {
  const reason = error instanceof RunFailed ? error.reason : error instanceof Error ? error.message : String(error);
  try {
    handle.setState({ state: error instanceof EndpointError ? 'interrupted' : 'failed', reason });
  } catch (refused) {
    // On a full disk not even the state can be written: the error that the run ended with is the one to show.
    if (!(refused instanceof EditrlError)) throw refused;
  }
}
