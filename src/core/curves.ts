/** Series of numbers as charts draw them: which points a line has, fewer of them, and their smoothed course. Pure; also runs in browsers. */

/** A line over iterations, oldest first, with a band around it where it has one. */
export interface Curve {
  readonly iterations: readonly number[];
  readonly mean: readonly number[];
  /** The edges of the band, as long as `mean`. */
  readonly low?: readonly number[];
  readonly high?: readonly number[];
}

/**
 * The points of a curve that are finite. The band is as wide as the errors, where any is above 0; errors may be fewer than values, and one that is
 * not finite counts as 0.
 */
export function finiteCurve(
  iterations: ArrayLike<number>,
  values: ArrayLike<number>,
  errors: ArrayLike<number> = [],
): Curve {
  const places = Array.from(values, (_, at) => at).filter((at) => Number.isFinite(values[at]));
  const mean = places.map((at) => values[at]);
  const spread = places.map((at) => (Number.isFinite(errors[at]) ? errors[at] : 0));
  const line = { iterations: places.map((at) => iterations[at]), mean };
  if (!spread.some((error) => error > 0)) return line;
  return {
    ...line,
    low: mean.map((value, at) => value - spread[at]),
    high: mean.map((value, at) => value + spread[at]),
  };
}

/**
 * A curve of at most `most` points. Each is the mean of a stretch of neighbours; the band spans their extremes, so that peaks survive, or keeps its
 * mean width where the curve has one already.
 */
export function condense(curve: Curve, most: number): Curve {
  const { iterations, mean, low, high } = curve;
  if (mean.length <= most) return curve;
  const stretches = Array.from({ length: most }, (_, point) => ({
    from: Math.floor((point * mean.length) / most),
    to: Math.floor(((point + 1) * mean.length) / most),
  }));
  const reduced = (values: readonly number[], join: (a: number, b: number) => number): number[] =>
    stretches.map(({ from, to }) => {
      let joined = values[from];
      for (let at = from + 1; at < to; at++) joined = join(joined, values[at]);
      return joined;
    });
  const averaged = (values: readonly number[]): number[] =>
    reduced(values, (a, b) => a + b).map((sum, point) => sum / (stretches[point].to - stretches[point].from));
  return {
    iterations: stretches.map(({ from, to }) => iterations[Math.floor((from + to - 1) / 2)]),
    mean: averaged(mean),
    low: low === undefined ? reduced(mean, Math.min) : averaged(low),
    high: high === undefined ? reduced(mean, Math.max) : averaged(high),
  };
}

/**
 * Centred moving average over about a tenth of the course. Towards both ends the window shrinks and stays centred, so that a slope does not bend
 * there. Values that are not finite are passed over.
 */
export function smooth(values: readonly number[]): number[] {
  const widest = Math.max(2, Math.round(values.length / 20));
  return values.map((_, at) => {
    const reach = Math.min(widest, at, values.length - 1 - at);
    const near = values.slice(at - reach, at + reach + 1).filter(Number.isFinite);
    return near.reduce((sum, value) => sum + value, 0) / near.length;
  });
}

const BARS = [...'▁▂▃▄▅▆▇█'];

/**
 * A curve in one line of text, `width` characters at most: each the mean of a stretch of values, from the least of them to the greatest.
 * Values that are not finite are passed over; empty where there is none.
 */
export function sparkline(values: readonly number[], width: number): string {
  const means = condense(finiteCurve(values, values), width).mean;
  const low = means.reduce((a, b) => Math.min(a, b), Infinity);
  const high = means.reduce((a, b) => Math.max(a, b), -Infinity);
  const level = (value: number): number =>
    high > low ? Math.min(BARS.length - 1, Math.floor(((value - low) / (high - low)) * BARS.length)) : 3;
  return means.map((value) => BARS[level(value)]).join('');
}
