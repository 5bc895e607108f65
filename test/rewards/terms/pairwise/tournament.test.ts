import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import {
  pairRound,
  usualRounds,
  type Pairing,
  playTournament,
  roundsOf,
  type Rounds,
} from '../../../../src/rewards/terms/pairwise/tournament.js';

const key = ([one, other]: Pairing): string => [one, other].sort((a, b) => a - b).join('-');

/** Plays among players of whom the lower number always wins, and says who met in which round. */
async function play(players: number, rounds: Rounds = null, seed = 1) {
  const met: Pairing[] = [];
  const random = new RandomStream('tournament', seed);
  const played = await playTournament(
    players,
    rounds,
    random,
    async (pairing) => {
      met.push(pairing);
      return pairing[0] < pairing[1] ? 1 : 0;
    },
    (share) => share,
  );
  return { met, ...played };
}

describe('a Swiss tournament', () => {
  it.each([
    [2, 1],
    [3, 2],
    [4, 2],
    [5, 3],
    [8, 3],
    [9, 4],
    [16, 4],
    [64, 6],
  ])('of %i has %i rounds, in which no one meets twice', async (players, rounds) => {
    expect(usualRounds(players)).toBe(rounds);
    for (let seed = 0; seed < 20; seed++) {
      const { met } = await play(players, null, seed);
      expect(met).toHaveLength(rounds * Math.floor(players / 2));
      expect(new Set(met.map(key)).size).toBe(met.length);
    }
  });

  it('lets players of equal points meet', () => {
    const round = { points: [0, 2, 1, 2, 0, 1], places: [0, 1, 2, 3, 4, 5], satOut: [0, 0, 0, 0, 0, 0] };
    expect(pairRound({ ...round, haveMet: () => false })).toEqual([
      [1, 3],
      [2, 5],
      [0, 4],
    ]);
    // The two best have met: each gets the next one.
    const haveMet = (one: number, other: number): boolean => key([one, other]) === '1-3';
    expect(pairRound({ ...round, haveMet }).map(key)).toEqual(['1-2', '3-5', '0-4']);
  });

  it('lets the worst placed sit out that has done so least', () => {
    const round = { points: [1, 0, 0], places: [0, 1, 2], haveMet: () => false };
    expect(pairRound({ ...round, satOut: [0, 0, 0] })).toEqual([[0, 1]]);
    expect(pairRound({ ...round, satOut: [0, 0, 1] })).toEqual([[0, 2]]);
    expect(pairRound({ ...round, satOut: [0, 1, 1] })).toEqual([[1, 2]]);
  });

  it('pairs as many as it can if all others have met', () => {
    const haveMet = (one: number, other: number): boolean => one === 0 || other === 0;
    const round = { points: [3, 2, 1, 0], places: [0, 1, 2, 3], satOut: [0, 0, 0, 0] };
    expect(pairRound({ ...round, haveMet })).toEqual([[1, 2]]);
    expect(pairRound({ ...round, haveMet: () => true })).toEqual([]);
  });

  it('ends when everybody has met everybody', async () => {
    expect(roundsOf(4, 99)).toBe(3);
    expect(roundsOf(5, 99)).toBe(5);
    expect(roundsOf(8, null)).toBe(3);
    expect(roundsOf(8, 2)).toBe(2);
    expect(roundsOf(8, 'all')).toBe(7);
    expect(roundsOf(1, null)).toBe(0);
    expect((await play(4, 99)).met).toHaveLength(6);
    expect((await play(6, 'all')).met).toHaveLength(15);
    expect((await play(1)).met).toEqual([]);
    expect((await play(0)).met).toEqual([]);
  });

  it('finds the best player, who wins every round', async () => {
    for (let seed = 0; seed < 10; seed++) {
      const { games } = await play(8, null, seed);
      const points = new Array<number>(8).fill(0);
      for (const { first, second, share } of games) {
        points[first] += share;
        points[second] += 1 - share;
      }
      expect(points[0]).toBe(3);
      expect(points.filter((won) => won === 3)).toHaveLength(1);
    }
  });

  it('is the same for the same random numbers, and another one for others', async () => {
    const names = async (seed: number): Promise<string> => (await play(8, null, seed)).met.map(key).join(' ');
    expect(await names(1)).toBe(await names(1));
    expect(await names(1)).not.toBe(await names(2));
  });

  it('counts no game that was not decided, and does not play it again', async () => {
    const met: string[] = [];
    const { games, results } = await playTournament(
      4,
      3,
      new RandomStream('undecided'),
      async (pairing) => {
        met.push(key(pairing));
        return pairing.includes(2) ? null : 0.5;
      },
      (share) => share,
    );
    expect(games).toHaveLength(3);
    expect(results).toHaveLength(6);
    expect(new Set(met).size).toBe(6);
  });
});
