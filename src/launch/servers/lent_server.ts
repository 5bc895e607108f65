/** A training server for a look at it, without a run: started in a folder of its own, and ended and removed after the look. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { trainerServerOf } from '../../recipes/shared/tokens/rules.js';
import type { RunSettings } from '../../schema/run.js';
import type { StartedTrainer } from '../../train/context.js';
import { serverDevices } from '../machine/device_kind.js';
import type { Devices, Placement } from '../machine/devices.js';
import { Guardian } from '../processes/guardian.js';
import { startTrainingServer } from './training_server.js';

export interface LendOptions {
  readonly devices: Devices;
  readonly placement: Pick<Placement, 'devices'>;
  readonly stop: AbortSignal;
  readonly onNote: (note: string) => void;
}

/**
 * Works with the server that the settings say to start; null where they say none. Its log stays where the work fails. Raises what starting it raises,
 * and what the work does.
 */
export async function withTrainingServer<T>(
  settings: RunSettings,
  { devices, placement, stop, onNote }: LendOptions,
  work: (started: StartedTrainer | null) => Promise<T>,
): Promise<T> {
  const trainer = trainerServerOf(settings);
  if (trainer === null || trainer.serve === null || settings.launch.command !== null) return work(null);
  const guardian = new Guardian();
  const folder = mkdtempSync(join(tmpdir(), 'editrl-training-server-'));
  const lost = new AbortController();
  try {
    const { address, close } = await startTrainingServer({
      trainer,
      devices: serverDevices(settings, devices, placement.devices),
      folder: join(folder, 'saved'),
      log: join(folder, 'training_server.log'),
      guardian,
      user: { notice: onNote, lost: (error) => lost.abort(error), over: stop },
      say: () => undefined,
    });
    let result: T;
    try {
      const ended = new Promise<never>((_resolve, reject) => {
        const rejectNow = (): void => reject(lost.signal.reason as Error);
        if (lost.signal.aborted) rejectNow();
        else lost.signal.addEventListener('abort', rejectNow, { once: true });
      });
      result = await Promise.race([work(address), ended]);
    } finally {
      await close();
    }
    rmSync(folder, { recursive: true, force: true });
    return result;
  } finally {
    guardian.close();
  }
}
