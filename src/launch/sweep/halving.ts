/** Successive halving: which of the runs at a rung continue. A pure function of their results. */

export interface Halving {
  /** Name of a metric, such as `validation/sampled/mean`; higher is better, unless it ends in `loss` or `kl`. */
  readonly metric: string;
  /** Iterations at which runs are compared, ascending. */
  readonly rungs: readonly number[];
  /** The share of them that continues, in (0, 1]; at least one does. */
  readonly keep: number;
}

export interface Ranked {
  readonly name: string;
  readonly kept: boolean;
  /** In words: the value, the rank, how many continue. */
  readonly reason: string;
}

/** Whether lower values of a metric are better. */
export function lessIsBetter(metric: string): boolean {
  return /(^|[/_])(loss|kl)$/.test(metric);
}

/** Ranks runs, best first. Runs without a finite value come last; ties keep their order. */
export function rank(
  halving: Halving,
  contenders: readonly { readonly name: string; readonly value: number | null }[],
): Ranked[] {
  const sign = lessIsBetter(halving.metric) ? -1 : 1;
  const score = (value: number | null): number =>
    value === null || !Number.isFinite(value) ? Number.NEGATIVE_INFINITY : sign * value;
  const order = contenders
    .map((contender) => ({ ...contender, score: score(contender.value) }))
    .sort((a, b) => (a.score === b.score ? 0 : b.score - a.score));
  // The product of two decimal fractions can be slightly above a whole number.
  const kept = Math.max(1, Math.ceil(order.length * halving.keep - 1e-9));
  return order.map(({ name, value }, index) => ({
    name,
    kept: index < kept,
    reason: `${halving.metric} ${value === null ? 'was not recorded' : value.toPrecision(4)}, place ${index + 1} of ${order.length}, ${kept} go on`,
  }));
}
