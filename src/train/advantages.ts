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
