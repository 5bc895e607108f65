import { describe, expect, it } from 'vitest';
import { RandomStream } from '../../../../src/core/random.js';
import { beats, fitStrengths, winRate, type Game } from '../../../../src/rewards/terms/pairwise/bradley_terry.js';

/** Games of a random tournament, with ties and halves of games. */
function randomGames(seed: number, players: number, count: number): Game[] {
  const random = new RandomStream('bradley terry', seed);
  return Array.from({ length: count }, () => {
    const first = random.integer(players);
    const second = (first + 1 + random.integer(players - 1)) % players;
    return { first, second, share: random.integer(5) / 4 };
  });
}

/**
 * Worths exp(strength) by the MM algorithm (Hunter, "MM algorithms for generalized Bradley-Terry models", 2004): wins over the sum of 1 / (own + other's
 * worth), with the tie against a player of worth 1.
 */
function worths(players: number, games: readonly Game[]): number[] {
  let found = new Array<number>(players).fill(1);
  for (let step = 0; step < 20_000; step++) {
    found = found.map((own, i) => {
      let wins = 0.5;
      let met = 1 / (own + 1);
      for (const { first, second, share } of games) {
        if (first === i) wins += share;
        if (second === i) wins += 1 - share;
        if (first === i || second === i) met += 1 / (found[first] + found[second]);
      }
      return wins / met;
    });
  }
  return found;
}

describe('strengths by Bradley and Terry', () => {
  it.each([1, 2, 3, 4, 5, 6])('equal those of the MM algorithm, tournament %i', (seed) => {
    const players = 3 + seed;
    const games = randomGames(seed, players, 4 * players);
    const { strengths } = fitStrengths(players, games);
    worths(players, games).forEach((worth, i) => expect(strengths[i]).toBeCloseTo(Math.log(worth), 8));
  });

  it('are finite where one wins everything, and 0 if no one has met', () => {
    const games = [1, 2, 3].map((second): Game => ({ first: 0, second, share: 1 }));
    const { strengths } = fitStrengths(4, games);
    expect(strengths[0]).toBeGreaterThan(1);
    expect(strengths[0]).toBeLessThan(4);
    expect(new Set(strengths.slice(1).map((strength) => strength.toFixed(9))).size).toBe(1);
    expect(fitStrengths(3, []).strengths).toEqual([0, 0, 0]);
    expect(fitStrengths(0, []).strengths).toEqual([]);
  });

  it('are found for the largest groups and the most lopsided games', () => {
    const players = 64;
    const games = Array.from({ length: players }, (_, first) =>
      Array.from({ length: players - first - 1 }, (_unused, k): Game => ({ first, second: first + 1 + k, share: 1 })),
    ).flat();
    const { strengths } = fitStrengths(players, games);
    for (let i = 1; i < players; i++) expect(strengths[i]).toBeLessThan(strengths[i - 1]);
  });

  it('have the covariance of the inverse second derivative', () => {
    const players = 5;
    const games = randomGames(9, players, 12);
    const fit = fitStrengths(players, games);
    // The gradient is 0 at the strengths: what a tie more for one player changes follows from the covariance.
    const weight = 1e-5;
    const nudged = games.concat({ first: 2, second: 3, share: 0.5 + weight }, { first: 2, second: 3, share: 0.5 });
    const level = games.concat({ first: 2, second: 3, share: 0.5 }, { first: 2, second: 3, share: 0.5 });
    const before = fitStrengths(players, level);
    const after = fitStrengths(players, nudged);
    before.strengths.forEach((strength, i) => {
      const slope = (after.strengths[i] - strength) / weight;
      expect(slope).toBeCloseTo(before.covariance[i][2] - before.covariance[i][3], 4);
    });
    expect(beats(fit, 0, 1) + beats(fit, 1, 0)).toBeCloseTo(1, 12);
  });
});

describe('the win rate', () => {
  it('is the mean over the other answers, those with the same image tied and the beaten ones won', () => {
    const standings = { strengths: [1, 0, -1], covariance: [] as number[][] };
    const identity = [0, 1, 2].map((i) => [0, 1, 2].map((k) => (i === k ? 1 : 0)));
    const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));
    const { value } = winRate({ ...standings, covariance: identity }, [2, 3, 1], 0, 2);
    expect(value).toBeCloseTo((0.5 + 3 * sigmoid(1) + sigmoid(2) + 2) / 7, 12);
  });

  it('has a mean of a half over a group without beaten answers', () => {
    const counts = [1, 3, 2, 1];
    const standings = fitStrengths(4, randomGames(3, 4, 9));
    const sum = counts.reduce((total, count, i) => total + count * winRate(standings, counts, i, 0).value, 0);
    expect(sum / 7).toBeCloseTo(0.5, 12);
  });

  it('has the error that its slope and the covariance give', () => {
    const standings = fitStrengths(4, randomGames(5, 4, 9));
    const counts = [1, 2, 1, 1];
    const { value, error } = winRate(standings, counts, 1, 1);
    const step = 1e-6;
    const slope = standings.strengths.map((_, k) => {
      const strengths = standings.strengths.map((strength, i) => strength + (i === k ? step : 0));
      return (winRate({ ...standings, strengths }, counts, 1, 1).value - value) / step;
    });
    let variance = 0;
    slope.forEach((a, i) => slope.forEach((b, k) => (variance += a * b * standings.covariance[i][k])));
    expect(error).toBeCloseTo(Math.sqrt(variance), 6);
    expect(error).toBeGreaterThan(0);
  });
});
