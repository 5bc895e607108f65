/** What one rank holds of a row and another computes with, brought there and nowhere else. */
import type { Peers } from '../../group/peers.js';

/** The rank that has something of a row, or is to have it. */
export type RankOf = (row: number) => number;

/**
 * Of `count` rows that all ranks count alike: what `of` says of them at the rank `from`, by row, on the rank `to`. Rows that stay where they are
 * are left out. All ranks must say the same of `from` and `to`.
 */
export async function carried<T>(
  peers: Peers,
  count: number,
  { from, to }: { readonly from: RankOf; readonly to: RankOf },
  of: (row: number) => T,
): Promise<Map<number, T>> {
  const moving = Array.from({ length: count }, (_, i) => i).filter((i) => from(i) !== to(i));
  const arrived = new Map<number, T>();
  if (moving.length === 0) return arrived;
  const between = (a: number, b: number): number[] => moving.filter((i) => from(i) === a && to(i) === b);
  const got = await peers.allToAll(Array.from({ length: peers.size }, (_, rank) => between(peers.rank, rank).map(of)));
  got.forEach((values, rank) => between(rank, peers.rank).forEach((i, at) => arrived.set(i, values[at])));
  return arrived;
}
