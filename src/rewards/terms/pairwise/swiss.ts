/** Who meets whom: a Swiss tournament, in which players of equal points meet and nobody meets twice. About n log2 n games order n players. */

/** Looks at so many pairings of a round; beyond that the best one so far is taken, in which somebody may sit out. */
const MOST_LOOKS = 10_000;

/** Rounds after which players are told apart: the two best have met, as in a knock-out. */
export function usualRounds(players: number): number {
  return players < 2 ? 0 : Math.ceil(Math.log2(players));
}

/** Two players, by their numbers; the first one is the better placed. */
export type Pairing = readonly [number, number];

export interface Round {
  /** Points so far [players]. */
  readonly points: readonly number[];
  /** Places of players with equal points [players]: lower ones come first. */
  readonly places: readonly number[];
  /** How often each has sat out [players]. */
  readonly satOut: readonly number[];
  readonly haveMet: (one: number, other: number) => boolean;
}

/**
 * The games of a round: the best placed player meets the next one that it has not met, and so on. Of an odd number the worst placed one sits out that has
 * done so least. Fewer games where players have met everyone.
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
  /** Whether everyone was paired. Players without a partner sit out where nothing else is left. */
  const pair = (left: readonly number[], made: readonly Pairing[]): boolean => {
    if (made.length > best.length) best = made;
    if (best.length === full) return true;
    if (left.length < 2 || looks++ > MOST_LOOKS) return false;
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

/** Everybody against everybody. */
export function allPairings(players: number): Pairing[] {
  const pairings: Pairing[] = [];
  for (let first = 0; first < players; first++) {
    for (let second = first + 1; second < players; second++) pairings.push([first, second]);
  }
  return pairings;
}
