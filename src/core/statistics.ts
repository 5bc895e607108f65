/** Means and spreads of lists of numbers. */

/** NaN of an empty list. */
export function average(values: readonly number[]): number {
  return values.length === 0 ? NaN : values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Standard deviation over the population. */
export function deviation(values: readonly number[]): number {
  const mean = average(values);
  return values.length === 0 ? 0 : Math.sqrt(average(values.map((value) => (value - mean) ** 2)));
}

/** A mean and how far its values lie about it; `std` is the sample's standard deviation, null for a single value. */
export interface Spread {
  readonly mean: number;
  readonly std: number | null;
  readonly n: number;
}

/** Null of an empty list. */
export function spreadOf(values: readonly number[]): Spread | null {
  const n = values.length;
  if (n === 0) return null;
  const mean = average(values);
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, std: n > 1 ? Math.sqrt(squares / (n - 1)) : null, n };
}

/** Standard error of the mean. */
export function standardError(values: readonly number[]): number {
  return values.length < 2 ? NaN : deviation(values) / Math.sqrt(values.length - 1);
}
