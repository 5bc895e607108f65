/** A tournament among answers, round by round. What a judge did not decide is no game. */
import type { RandomStream } from '../../../core/random.js';
import type { Game } from './bradley_terry.js';
import { allPairings, pairRound, usualRounds, type Pairing } from './swiss.js';

/** How many rounds are played; `all`: everybody against everybody. */
export type Rounds = number | 'all' | null;

export interface Played<R> {
  /** Games that were decided. */
  readonly games: readonly Game[];
  /** What `play` gave for each pairing, in order. */
  readonly results: readonly (readonly [Pairing, R])[];
}

/** Rounds of so many players, where a setting of null stands for as many as tell them apart. */
export function roundsOf(players: number, rounds: Rounds): number {
  // After so many everybody has met everybody; of an odd number one sits out each time.
  const most = Math.max(0, players - 1 + (players % 2));
  return rounds === 'all' ? most : Math.min(rounds ?? usualRounds(players), most);
}

/**
 * Plays `rounds` among so many players. The games of a round are played at once, and the next round is paired by what they gave; `random` alone
 * decides places before the first. `shareOf`: how much of a game went to the first player; null where it was not decided: it is not played again.
 */
export async function playTournament<R>(
  players: number,
  rounds: Rounds,
  random: RandomStream,
  play: (pairing: Pairing) => Promise<R>,
  shareOf: (result: R) => number | null,
): Promise<Played<R>> {
  const places = random.shuffled(Array.from({ length: players }, (_, i) => i));
  const points = new Array<number>(players).fill(0);
  const satOut = new Array<number>(players).fill(0);
  const met = new Set<string>();
  const nameOf = (one: number, other: number): string => `${Math.min(one, other)}/${Math.max(one, other)}`;
  const games: Game[] = [];
  const results: (readonly [Pairing, R])[] = [];
  const meet = async (pairings: readonly Pairing[]): Promise<void> => {
    for (const [first, second] of pairings) met.add(nameOf(first, second));
    const ended = await Promise.all(pairings.map(async (pairing) => [pairing, await play(pairing)] as const));
    results.push(...ended);
    for (const [[first, second], result] of ended) {
      const share = shareOf(result);
      if (share === null) continue;
      games.push({ first, second, share });
      points[first] += share;
      points[second] += 1 - share;
    }
  };
  if (rounds === 'all') {
    await meet(allPairings(players));
    return { games, results };
  }
  for (let round = roundsOf(players, rounds); round > 0; round--) {
    const haveMet = (one: number, other: number): boolean => met.has(nameOf(one, other));
    const pairings = pairRound({ points, places, satOut, haveMet });
    const playing = new Set(pairings.flat());
    points.forEach((_, player) => {
      if (!playing.has(player)) satOut[player] += 1;
    });
    await meet(pairings);
  }
  return { games, results };
}
