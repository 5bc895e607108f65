/** Advantages: how much better an episode did than the others of its group. Pure functions. */

export interface AdvantageOptions {
  readonly scale: 'std' | 'global_std' | 'none';
  readonly eps: number;
  /** Largest absolute advantage; null for no limit. */
  readonly clip: number | null;
  /** Multiplies the result (`reward_scale`). */
  readonly factor: number;
}

export interface GroupAdvantages {
  /** Per episode; null where it carries no loss: unscored, or in a dropped group. */
  readonly advantages: readonly (number | null)[];
  readonly dropped: boolean;
  readonly zeroSpread: boolean;
}

/**
 * (r - mean) / (std + eps) within each group, std over the population (EARL; Shao et al., 2024). `rewardsG` holds null for
 * unscored episodes: they count nowhere. A group with fewer than two scored episodes is dropped.
 */
export function groupAdvantages(
  groups: readonly (readonly (number | null)[])[],
  options: AdvantageOptions,
): GroupAdvantages[] {
  const scoredOf = (group: readonly (number | null)[]): number[] => group.filter((reward) => reward !== null);
  const globalStd = deviation(groups.flatMap(scoredOf));
  return groups.map((rewardsG) => {
    const scored = scoredOf(rewardsG);
    if (scored.length < 2) return { advantages: rewardsG.map(() => null), dropped: true, zeroSpread: false };
    const mean = average(scored);
    const divisor = { std: deviation(scored) + options.eps, global_std: globalStd + options.eps, none: 1 }[
      options.scale
    ];
    const limit = options.clip ?? Infinity;
    return {
      advantages: rewardsG.map((reward) =>
        reward === null ? null : Math.max(-limit, Math.min(limit, (options.factor * (reward - mean)) / divisor)),
      ),
      dropped: false,
      zeroSpread: Math.max(...scored) === Math.min(...scored),
    };
  });
}

/**
 * Several rewards whose spreads differ, each normalised by itself so that none drowns the others: GDPO (Liu et al., "Group reward-Decoupled
 * Normalization Policy Optimization", 2026, arXiv 2601.05242). With r_k the values of term k and w_k its weight,
 *
 *   A_k = (r_k - mean(r_k)) / (std(r_k) + eps)    within the group
 *   S   = sum_k w_k A_k
 *   A   = factor * S / (std(S) + eps)             std over all episodes of the iteration that carry a loss
 *
 * with standard deviations over the population; the mean of S over the iteration, which the paper subtracts, is 0, since each group's is.
 * `groups` holds each episode's values in the order of `weights`, null where it is unscored. `scale` is not looked at. A group has no spread
 * when no term has any.
 */
export function perTermAdvantages(
  groups: readonly (readonly (readonly number[] | null)[])[],
  weights: readonly number[],
  options: Omit<AdvantageOptions, 'scale'>,
): GroupAdvantages[] {
  const within = { scale: 'std', eps: options.eps, clip: null, factor: 1 } as const;
  const perTerm = weights.map((_, k) =>
    groupAdvantages(
      groups.map((group) => group.map((values) => (values === null ? null : values[k]))),
      within,
    ),
  );
  const sums = groups.map((group, g) =>
    group.map((_, i) => {
      const parts = weights.map((weight, k) => weight * (perTerm[k][g].advantages[i] ?? NaN));
      const sum = parts.reduce((total, part) => total + part, 0);
      return Number.isNaN(sum) ? null : sum;
    }),
  );
  const divisor = deviation(sums.flat().filter((sum) => sum !== null)) + options.eps;
  const limit = options.clip ?? Infinity;
  return sums.map((group, g) => ({
    advantages: group.map((sum) =>
      sum === null ? null : Math.max(-limit, Math.min(limit, (options.factor * sum) / divisor)),
    ),
    dropped: perTerm.every((term) => term[g].dropped),
    zeroSpread: perTerm.every((term) => term[g].zeroSpread),
  }));
}

export function average(values: readonly number[]): number {
  return values.length === 0 ? NaN : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Standard deviation over the population. */
export function deviation(values: readonly number[]): number {
  const mean = average(values);
  return values.length === 0 ? 0 : Math.sqrt(average(values.map((value) => (value - mean) ** 2)));
}

/** Standard error of the mean. */
export function standardError(values: readonly number[]): number {
  return values.length < 2 ? NaN : deviation(values) / Math.sqrt(values.length - 1);
}
