/** Decisions of one rank for all. */
import type { ProcessGroup } from './process_group.js';

/** Work was interrupted because the run was asked to stop, or because rank 0 failed. */
export class WaitInterrupted extends Error {}

/** Rank 0 does the work, and all ranks get its result. If it raises, the others raise WaitInterrupted, since rank 0 reports the error. */
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
