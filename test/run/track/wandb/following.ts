/** Follows a run to a stand-in of W&B, a thousand times as fast as usual. */
import { setTimeout as delay } from 'node:timers/promises';
import { RunTracking, type TrackingOptions } from '../../../../src/run/track/tracking.js';
import { trackSettings, type FakeRun } from '../run_directory.js';
import type { StubWandb } from './stub.js';

/** Resolves once it holds. */
export async function until(holds: () => boolean): Promise<void> {
  for (let looks = 0; !holds(); looks++) {
    if (looks > 2000) throw new Error('waited in vain');
    await delay(5);
  }
}

export function following(
  run: FakeRun,
  stub: StubWandb,
  said: string[],
  others: Partial<TrackingOptions> = {},
): RunTracking {
  return new RunTracking({
    paths: run.paths,
    record: run.record,
    track: trackSettings({ wandb: { project: 'edits' } }),
    env: stub.env,
    pids: () => [process.pid],
    say: (line) => void said.push(line),
    onStop: () => void said.push('stop'),
    pace: { everyMs: 15, heartbeatMs: 30 },
    retryPolicy: { backoffBaseMs: 2, backoffCapMs: 60, attemptTimeoutMs: 2000 },
    // However slow the machine is; what is about giving up says less.
    finishMs: 60_000,
    ...others,
  });
}
