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

/** Standard error of the mean. */
export function standardError(values: readonly number[]): number {
  return values.length < 2 ? NaN : deviation(values) / Math.sqrt(values.length - 1);
}
