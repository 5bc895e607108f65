/** The processes that train one policy together, as far as the policy has to know of them. */

/** Every process calls the same of these in the same order. */
export interface Peers {
  readonly rank: number;
  readonly size: number;
  /** Every rank's value, by rank, on every rank. */
  allGather<T>(value: T): Promise<T[]>;
  /** Brings element r of each rank's list to rank r: what every rank, by rank, had for this one. */
  allToAll<T>(toEach: readonly T[]): Promise<T[]>;
  /** Replaces the numbers by their sums over the ranks, bit-identical everywhere. */
  sum(arrays: readonly Float32Array[]): Promise<void>;
}

export const soloPeers: Peers = {
  rank: 0,
  size: 1,
  allGather: async (value) => [value],
  allToAll: async (toEach) => [...toEach],
  sum: async () => {},
};

/** The part of `count` things that a rank takes: contiguous shares whose sizes differ by at most one. `end` is exclusive. */
export function shareOf(
  count: number,
  { rank, size }: { readonly rank: number; readonly size: number },
): { readonly start: number; readonly end: number } {
  return { start: Math.floor((rank * count) / size), end: Math.floor(((rank + 1) * count) / size) };
}
