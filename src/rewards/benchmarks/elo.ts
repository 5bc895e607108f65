/**
 * Ratings of models from comparisons with ties in several dimensions, as in GEditBench v2 (`elo_score.py`). Each model has one strength, each
 * dimension its own propensity of ties nu (Davidson, "On extending the Bradley-Terry model to accommodate ties", 1970): with
 * s = exp(strength), P(first) : P(second) : P(tie) = s1 : s2 : 2 nu sqrt(s1 s2).
 */
import { InternalError } from '../../core/errors.js';
import { grouped } from '../../core/grouped.js';
import { inverse, multiply } from '../terms/pairwise/bradley_terry.js';

export interface Match {
  readonly dimension: string;
  readonly first: string;
  readonly second: string;
  /** 1 if the first wins, 0 if the second does, and 0.5 for a tie. */
  readonly share: number;
}

/** Bounds of log nu. Without ties, or with ties alone, there is no other. */
const LOG_NU = [-12, 8] as const;
/** The weight of half the squared strengths. The strength of the last model by name is 0 there. */
const ALPHA = 1;
const FLAT = 1e-9;
const MAX_STEPS = 500;

/** Elo numbers around 1000 by model. Empty without matches. */
export function eloOf(matches: readonly Match[]): ReadonlyMap<string, number> {
  const models = [...new Set(matches.flatMap(({ first, second }) => [first, second]))].sort();
  if (models.length === 0) return new Map();
  const dimensions = [...grouped(matches, ({ dimension }) => dimension).values()];
  const mean = matches.length / dimensions.length;
  const games = dimensions.flatMap((own, d) =>
    own.map(({ first, second, share }): Game => {
      const [a, b] = [models.indexOf(first), models.indexOf(second)];
      return { a, b, d: models.length - 1 + d, share, weight: mean / own.length };
    }),
  );
  const ties = dimensions.map((own) => own.filter(({ share }) => share === 0.5).length / own.length);
  const fixed = ties.map((rate) => (rate === 0 ? LOG_NU[0] : rate === 1 ? LOG_NU[1] : null));
  const start = [...models.slice(1).map(() => 0), ...ties.map((rate, d) => fixed[d] ?? Math.log(rate / (1 - rate)))];
  const isFixed = start.map((_, i) => i >= models.length - 1 && fixed[i - models.length + 1] !== null);
  const found = minimize(start, isFixed, (at) => lossOf(at, models.length, games));
  const strengths = [...found.slice(0, models.length - 1), 0];
  const center = strengths.reduce((sum, strength) => sum + strength, 0) / strengths.length;
  return new Map(models.map((model, i) => [model, 1000 + ((strengths[i] - center) * 400) / Math.LN10]));
}

interface Game {
  /** The models by their index. */
  readonly a: number;
  readonly b: number;
  /** The index of the dimension's log nu among the parameters. */
  readonly d: number;
  readonly share: number;
  readonly weight: number;
}

interface Loss {
  readonly value: number;
  readonly gradient: number[];
  /** Second derivatives, positive semidefinite: the loss is convex. */
  readonly curvature: number[][];
}

/** The weighted negative log-likelihood with its penalty. Parameters: strengths without the last, then log nu of each dimension. */
function lossOf(at: readonly number[], models: number, games: readonly Game[]): Loss {
  const strength = (model: number): number => (model === models - 1 ? 0 : at[model]);
  const gradient = at.map((x, i) => (i < models - 1 ? ALPHA * x : 0));
  const curvature = at.map((_, i) => at.map((_, k) => (i === k && i < models - 1 ? ALPHA : 0)));
  let value = at.slice(0, models - 1).reduce((sum, x) => sum + (ALPHA * x * x) / 2, 0);
  for (const { a, b, d, share, weight } of games) {
    const logits = [strength(a), strength(b), at[d] + (strength(a) + strength(b)) / 2 + Math.LN2];
    const highest = Math.max(...logits);
    const logZ = highest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - highest), 0));
    const outcome = share === 1 ? 0 : share === 0 ? 1 : 2;
    value -= weight * (logits[outcome] - logZ);
    const p = logits.map((logit) => Math.exp(logit - logZ));
    // The derivatives of the three logits by the parameters that they depend on.
    const slopes = [
      ...(a < models - 1 ? [{ i: a, of: [1, 0, 0.5] }] : []),
      ...(b < models - 1 ? [{ i: b, of: [0, 1, 0.5] }] : []),
      { i: d, of: [0, 0, 1] },
    ];
    const means = slopes.map(({ of }) => of.reduce((sum, slope, l) => sum + slope * p[l], 0));
    slopes.forEach(({ i, of }, x) => {
      gradient[i] += weight * (means[x] - of[outcome]);
      slopes.forEach(({ i: k, of: other }, y) => {
        const product = of.reduce((sum, slope, l) => sum + slope * other[l] * p[l], 0);
        curvature[i][k] += weight * (product - means[x] * means[y]);
      });
    });
  }
  return { value, gradient, curvature };
}

/** Newton's method with halved steps, over the parameters that are not fixed. */
function minimize(
  start: readonly number[],
  isFixed: readonly boolean[],
  loss: (at: readonly number[]) => Loss,
): readonly number[] {
  let at = start;
  let found = loss(at);
  for (let step = 0; ; step++) {
    if (step === MAX_STEPS) throw new InternalError('ratings were not found');
    const gradient = found.gradient.map((slope, i) => (isFixed[i] ? 0 : slope));
    if (Math.max(...gradient.map(Math.abs)) < FLAT) return at;
    const curvature = found.curvature.map((row, i) =>
      row.map((entry, k) => (isFixed[i] || isFixed[k] ? Number(i === k) : i === k ? entry + 1e-12 : entry)),
    );
    const direction = multiply(inverse(curvature), gradient);
    for (let size = 1; ; size /= 2) {
      const tried = at.map((x, i) => x - size * direction[i]);
      const there = loss(tried);
      if (there.value > found.value + 1e-12 * Math.abs(found.value) && size > FLAT) continue;
      const isSame = tried.every((x, i) => x === at[i]);
      [at, found] = [tried, there];
      if (isSame || size <= FLAT) return at;
      break;
    }
  }
}
