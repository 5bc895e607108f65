/** Means and spreads of lists of numbers. */

/** NaN for an empty list. */
export function average(values: readonly number[]): number {
  return values.length === 0 ? NaN : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Standard deviation over the population. */
export function deviation(values: readonly number[]): number {
  const mean = average(values);
  return values.length === 0 ? 0 : Math.sqrt(average(values.map((value) => (value - mean) ** 2)));
}

/** A mean and the spread of its values. `std` is the sample's standard deviation, null for a single value. */
export interface Spread {
  readonly mean: number;
  readonly std: number | null;
  readonly n: number;
}

/** Null for an empty list. */
export function spreadOf(values: readonly number[]): Spread | null {
  const n = values.length;
  if (n === 0) return null;
  const mean = average(values);
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, std: n > 1 ? Math.sqrt(squares / (n - 1)) : null, n };
}

/** The quantile of a share from 0 to 1, interpolated between neighbors. NaN for an empty list. */
export function quantile(values: readonly number[], share: number): number {
  if (values.length === 0) return NaN;
  const sorted = values.toSorted((a, b) => a - b);
  const at = share * (sorted.length - 1);
  const [below, above] = [sorted[Math.floor(at)], sorted[Math.ceil(at)]];
  return below + (above - below) * (at - Math.floor(at));
}

/** Smaller deviations are rounding errors. */
const MIN_DEVIATION = 1e-9;

/** Pearson's coefficient of pairs: the mean product of deviations over the product of standard deviations. Null if either is constant. */
export function correlation(pairs: readonly (readonly [number, number])[]): number | null {
  const [a, b] = [0, 1].map((side) => {
    const values = pairs.map((pair) => pair[side]);
    return { mean: average(values), std: deviation(values) };
  });
  if (pairs.length < 2 || a.std < MIN_DEVIATION || b.std < MIN_DEVIATION) return null;
  const product = average(pairs.map(([x, y]) => (x - a.mean) * (y - b.mean)));
  // Rounding may exceed the bounds.
  return Math.max(-1, Math.min(1, product / (a.std * b.std)));
}

/** Standard error of the mean. */
export function standardError(values: readonly number[]): number {
  return values.length < 2 ? NaN : deviation(values) / Math.sqrt(values.length - 1);
}
