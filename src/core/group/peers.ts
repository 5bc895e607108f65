/** The processes that train one policy together, as the policy sees them. */

/** Every process calls the same of these methods in the same order. */
export interface Peers {
  readonly rank: number;
  readonly size: number;
  /** Every rank's value, by rank, on every rank. */
  allGather<T>(value: T): Promise<T[]>;
  /** Sends element r of each rank's list to rank r, which gets one element from every rank. */
  allToAll<T>(toEach: readonly T[]): Promise<T[]>;
  /** Replaces the numbers by their sums over the ranks, bit-identical on all ranks. */
  sum(arrays: readonly Float32Array[]): Promise<void>;
}

export const soloPeers: Peers = {
  rank: 0,
  size: 1,
  allGather: async (value) => [value],
  allToAll: async (toEach) => [...toEach],
  sum: async () => {},
};

/** The share of `count` things of one rank: contiguous, with sizes that differ by at most one. `end` is exclusive. */
export function shareOf(
  count: number,
  { rank, size }: { readonly rank: number; readonly size: number },
): { readonly start: number; readonly end: number } {
  return { start: Math.floor((rank * count) / size), end: Math.floor(((rank + 1) * count) / size) };
}
