/** A tournament among answers, round by round. A game that the judge did not decide does not count. */
import type { RandomStream } from '../../../core/random.js';
import type { Game } from './bradley_terry.js';

/** The number of rounds. `all`: everyone against everyone. */
export type Rounds = number | 'all' | null;

export interface Played<R> {
  /** Games that were decided. */
  readonly games: readonly Game[];
  /** The results of `play`, one for each pairing, in order. */
  readonly results: readonly (readonly [Pairing, R])[];
}

/** Rounds for this many players. A setting of null means as many as distinguish them. */
export function roundsOf(players: number, rounds: Rounds): number {
  // After this many rounds everyone has met everyone. If the number is odd, one player sits out each time.
  const most = Math.max(0, players - 1 + (players % 2));
  return rounds === 'all' ? most : Math.min(rounds ?? usualRounds(players), most);
}

/**
 * Plays `rounds` among the players. The games of a round are played at once, and their results pair the next round. `random` alone decides
 * the first places. `shareOf`: the first player's share of a game, or null if it was not decided. It is not played again.
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

/** The highest number of pairings that a round tries. Beyond it, the best pairing so far counts, in which a player may sit out. */
const MAX_ATTEMPTS = 10_000;

/** Rounds after which players are distinguished: the two best have met, as in a knock-out. */
export function usualRounds(players: number): number {
  return players < 2 ? 0 : Math.ceil(Math.log2(players));
}

/** Two players, by their numbers. The first one has the better place. */
export type Pairing = readonly [number, number];

export interface Round {
  /** Points so far [players]. */
  readonly points: readonly number[];
  /** Places of players with equal points [players]. Lower places come first. */
  readonly places: readonly number[];
  /** Number of rounds that each player has sat out [players]. */
  readonly satOut: readonly number[];
  readonly haveMet: (one: number, other: number) => boolean;
}

/**
 * The games of a round: the best player meets the next one that it has not met, and so on. If the number is odd, the lowest player among
 * those who sat out least sits out. Fewer games if players have met everyone.
 */
export function pairRound({ points, places, satOut, haveMet }: Round): Pairing[] {
  const ranked = points.map((_, player) => player).sort((a, b) => points[b] - points[a] || places[a] - places[b]);
  if (ranked.length % 2 === 1) {
    const least = Math.min(...satOut);
    const out = ranked.findLast((player) => satOut[player] === least);
    ranked.splice(ranked.indexOf(out ?? ranked[ranked.length - 1]), 1);
  }
  let best: readonly Pairing[] = [];
  let looks = 0;
  const full = Math.floor(ranked.length / 2);
  /** Whether everyone was paired. Players without a partner sit out if nothing else is possible. */
  const pair = (left: readonly number[], made: readonly Pairing[]): boolean => {
    if (made.length > best.length) best = made;
    if (best.length === full) return true;
    if (left.length < 2 || looks++ > MAX_ATTEMPTS) return false;
    const [first, ...others] = left;
    for (const second of others) {
      if (haveMet(first, second)) continue;
      const rest = others.filter((player) => player !== second);
      if (pair(rest, [...made, [first, second]])) return true;
    }
    return pair(others, made);
  };
  pair(ranked, []);
  return [...best];
}

/** Everyone against everyone. */
export function allPairings(players: number): Pairing[] {
  const pairings: Pairing[] = [];
  for (let first = 0; first < players; first++) {
    for (let second = first + 1; second < players; second++) pairings.push([first, second]);
  }
  return pairings;
}

/** The part with the share of an answer's questions in which the image that is shown first wins. A tie counts half. */
export const FIRST_SHOWN = 'first_shown_wins';
