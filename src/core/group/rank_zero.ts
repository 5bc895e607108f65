/** Runs work on rank 0 and shares its result with all ranks. */
import type { ProcessGroup } from './process_group.js';

/** Work was interrupted because the run was asked to stop, or because rank 0 failed. */
export class WaitInterrupted extends Error {}

/** Calls `work` on rank 0 and returns its result on every rank. If it raises, the other ranks raise WaitInterrupted, because rank 0 reports the error. */
export async function runOnRankZero<T>(
  group: Pick<ProcessGroup, 'rank' | 'broadcast'>,
  work: () => Promise<T>,
): Promise<T> {
  if (group.rank > 0) {
    const result = await group.broadcast<{ readonly value: T } | null>();
    if (result === null) throw new WaitInterrupted();
    return result.value;
  }
  let value: T;
  try {
    value = await work();
  } catch (error) {
    await group.broadcast(null);
    throw error;
  }
  await group.broadcast({ value });
  return value;
}
