/**
 * The Bradley-Terry model (Bradley and Terry, "Rank analysis of incomplete block designs", Biometrika 39, 1952): the log-odds that one
 * player beats another are the difference of their strengths. A tie counts as half a win. Each player also has one tie with a player of
 * strength 0, so that a player who won or lost everything keeps a finite strength.
 */
import { InternalError } from '../../../core/errors.js';

/** One game between two players, by their numbers. */
export interface Game {
  readonly first: number;
  readonly second: number;
  /** The share of the first player, from 0 to 1. */
  readonly share: number;
}

/** The result of fitting the model to games. */
export interface Standings {
  /** Strengths [players], in log-odds. */
  readonly strengths: readonly number[];
  /** Their covariance [players, players]: the inverse of the negative log-likelihood's second derivative. */
  readonly covariance: readonly (readonly number[])[];
}

const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x));

/** The probability that player `i` beats player `k`. */
export function beats({ strengths }: Standings, i: number, k: number): number {
  return sigmoid(strengths[i] - strengths[k]);
}

/** A gradient below this is zero: at double precision, for sums of tens of games. */
const FLAT = 1e-12;
/** Newton's method on a strictly concave function takes about six steps. More steps mean that something else is wrong. */
const MAX_STEPS = 200;

/** The most likely strengths of the players. */
export function fitStrengths(players: number, games: readonly Game[]): Standings {
  let strengths: number[] = new Array<number>(players).fill(0);
  let found = likelihoodOf(strengths, games);
  for (let step = 0; Math.max(0, ...found.gradient.map(Math.abs)) > FLAT; step++) {
    if (step === MAX_STEPS) throw new InternalError(`strengths of ${players} players were not found`);
    const direction = multiply(inverse(found.curvature), found.gradient);
    // Newton's step may lead too far. Half of it, often enough, leads up.
    for (let size = 1; ; size /= 2) {
      const tried = strengths.map((strength, i) => strength + size * direction[i]);
      const there = likelihoodOf(tried, games);
      if (there.value < found.value - FLAT && size > FLAT) continue;
      [strengths, found] = [tried, there];
      break;
    }
  }
  return { strengths, covariance: inverse(found.curvature) };
}

interface Likelihood {
  readonly value: number;
  readonly gradient: readonly number[];
  /** The negative second derivative [players, players], positive definite. */
  readonly curvature: readonly (readonly number[])[];
}

function likelihoodOf(strengths: readonly number[], games: readonly Game[]): Likelihood {
  const gradient = strengths.map((strength) => 0.5 - sigmoid(strength));
  const curvature = strengths.map((strength, i) =>
    strengths.map((_, k) => (i === k ? sigmoid(strength) * sigmoid(-strength) : 0)),
  );
  const logOdds = (x: number): number => -Math.log1p(Math.exp(-Math.abs(x))) + Math.min(0, x);
  let value = strengths.reduce((sum, strength) => sum + 0.5 * (logOdds(strength) + logOdds(-strength)), 0);
  for (const { first, second, share } of games) {
    const lead = strengths[first] - strengths[second];
    const wins = sigmoid(lead);
    value += share * logOdds(lead) + (1 - share) * logOdds(-lead);
    gradient[first] += share - wins;
    gradient[second] -= share - wins;
    const weight = wins * (1 - wins);
    curvature[first][first] += weight;
    curvature[second][second] += weight;
    curvature[first][second] -= weight;
    curvature[second][first] -= weight;
  }
  return { value, gradient, curvature };
}

/** The product of a matrix and a vector. */
export function multiply(matrix: readonly (readonly number[])[], vector: readonly number[]): number[] {
  return matrix.map((row) => row.reduce((sum, entry, k) => sum + entry * vector[k], 0));
}

/** The inverse of a positive definite matrix, by Gauss and Jordan: its pivots stay on the diagonal. */
export function inverse(matrix: readonly (readonly number[])[]): number[][] {
  const size = matrix.length;
  const rows = matrix.map((row, i) => [...row, ...row.map((_, k) => (i === k ? 1 : 0))]);
  for (let at = 0; at < size; at++) {
    const pivot = rows[at][at];
    for (let k = 0; k < 2 * size; k++) rows[at][k] /= pivot;
    for (let i = 0; i < size; i++) {
      const factor = rows[i][at];
      if (i === at || factor === 0) continue;
      for (let k = 0; k < 2 * size; k++) rows[i][k] -= factor * rows[at][k];
    }
  }
  return rows.map((row) => row.slice(size));
}

/** A share of the others that a player is expected to beat, with its standard error. */
export interface WinRate {
  readonly value: number;
  readonly error: number;
}

/**
 * The share of the other answers that an answer of player `i` is expected to beat. Player `k` represents `counts[k]` equal answers, and
 * `beaten` further answers lose to everyone. Equal answers tie. The error is that of the strengths (delta method).
 */
export function winRate(standings: Standings, counts: readonly number[], i: number, beaten: number): WinRate {
  const others = counts.reduce((sum, count) => sum + count, 0) - 1 + beaten;
  let won = beaten + (counts[i] - 1) / 2;
  const slope = counts.map(() => 0);
  counts.forEach((count, k) => {
    if (k === i) return;
    const wins = beats(standings, i, k);
    won += count * wins;
    const change = (count * wins * (1 - wins)) / others;
    slope[i] += change;
    slope[k] -= change;
  });
  const variance = multiply(standings.covariance, slope).reduce((sum, entry, k) => sum + entry * slope[k], 0);
  return { value: won / others, error: Math.sqrt(Math.max(0, variance)) };
}
