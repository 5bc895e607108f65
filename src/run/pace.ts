/** Estimates how long the rest of a run takes, from its latest iterations. */

/** How many of the latest iterations count. Their median is not affected by the first one after a start, which also compiles. */
const TIMED = 9;
/** Fewer iterations than this are not enough for an estimate. */
const FEWEST = 3;

/**
 * Seconds that `iterations` more will take, by the median of the latest `seconds` per iteration (oldest first); null before three
 * iterations are timed.
 */
export function secondsLeft(seconds: readonly number[], iterations: number): number | null {
  const latest = seconds.filter(Number.isFinite).slice(-TIMED);
  if (latest.length < FEWEST) return null;
  const sorted = latest.sort((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] * Math.max(0, iterations);
}
