/** One attempt with another trainer's program: this process owns the run, and writes what this program's workers otherwise would. */
import { claimRequest } from '../../run/claim_request.js';
import { StopRequestWatcher } from '../ownership/pause.js';
import { ownRun } from '../ownership/owner.js';
import { endLeftoverWorkers, recordWorkers } from '../ownership/takeover.js';
import { messageOf, reasonOf } from '../processes/failure.js';
import type { RunKind } from '../worker/protocol.js';
import { contextOf, type Attempt, type AttemptServices } from './attempt.js';

/** Claims the run and trains it to its end. Raises whatever prevents that, and RunFailed when the program fails. */
export async function externalAttempt(
  { config, placement, processes, stop }: Attempt,
  { guardian, view, kill, trackings, command, onClaimed }: AttemptServices,
): Promise<RunKind> {
  const { settings } = config;
  const { run_name } = settings;
  const tracked = trackings.attempt(settings);
  const options = {
    terminal: (line: string) => view.workerLine(run_name, line),
    describe: (error: unknown) => ({
      reason: reasonOf(error),
      stack: (error instanceof Error ? error.stack : undefined) ?? messageOf(error),
    }),
    onEnd: () => tracked.end(),
  };
  return ownRun(
    claimRequest(config, contextOf(settings, command, placement.devices)),
    options,
    async ({ handle, log, lost }) => {
      onClaimed(settings);
      const asked = new StopRequestWatcher(handle.paths);
      try {
        tracked.begin((line, level) => void log.logger.log(level, line));
        await endLeftoverWorkers(handle.paths);
        for (const note of handle.notes) log.logger.info(note);
        const { runCommand } = await import('./command.js');
        return await runCommand(config, handle, {
          log,
          guardian,
          placement,
          processes,
          stop: AbortSignal.any([stop, asked.stop, tracked.stop]),
          kill: AbortSignal.any([lost, asked.kill, ...(kill === undefined ? [] : [kill])]),
          onStarted: (started) => {
            tracked.workers = started.workers;
            recordWorkers(handle.paths, started);
          },
          onOutput: (line) => view.trainerLine(run_name, line),
        });
      } finally {
        asked.close();
      }
    },
  );
}
