/** Number series for charts: finite points, fewer points, smoothing, sparklines. Pure, and also runs in browsers. */

/** A line over iterations, oldest first, with an optional band. */
export interface Curve {
  readonly iterations: readonly number[];
  readonly mean: readonly number[];
  /** The edges of the band, as long as `mean`. */
  readonly low?: readonly number[];
  readonly high?: readonly number[];
}

/**
 * The finite points of a curve at iterations from `from` to `to`. The band has the width of the errors, if any is above 0. There may be
 * fewer errors than values, and a non-finite error counts as 0. Called for a hundred thousand lines at a time.
 */
export function finiteCurve(
  iterations: ArrayLike<number>,
  values: ArrayLike<number>,
  errors: ArrayLike<number> = [],
  [from, to]: readonly [from: number, to: number] = [-Infinity, Infinity],
): Curve {
  const line = { iterations: [] as number[], mean: [] as number[] };
  const band = { low: [] as number[], high: [] as number[] };
  let widest = 0;
  for (let at = 0; at < values.length; at++) {
    const iteration = iterations[at];
    const value = values[at];
    if (!Number.isFinite(value) || iteration < from || iteration > to) continue;
    line.iterations.push(iteration);
    line.mean.push(value);
    if (errors.length === 0) continue;
    const error = Number.isFinite(errors[at]) ? errors[at] : 0;
    widest = Math.max(widest, error);
    band.low.push(value - error);
    band.high.push(value + error);
  }
  return widest > 0 ? { ...line, ...band } : line;
}

/**
 * A curve of at most `most` points. Each is the mean of neighboring values. The band spans their extremes, so that peaks survive, or keeps
 * its mean width if the curve has a band already.
 */
export function condense(curve: Curve, most: number): Curve {
  const { iterations, mean, low = mean, high = mean } = curve;
  if (mean.length <= most) return curve;
  const few = { iterations: [] as number[], mean: [] as number[], low: [] as number[], high: [] as number[] };
  const banded = curve.low !== undefined;
  for (let point = 0; point < most; point++) {
    const start = Math.floor((point * mean.length) / most);
    const end = Math.floor(((point + 1) * mean.length) / most);
    const sums = { mean: 0, low: 0, high: 0 };
    let [least, greatest] = [Infinity, -Infinity];
    for (let at = start; at < end; at++) {
      sums.mean += mean[at];
      sums.low += low[at];
      sums.high += high[at];
      if (mean[at] < least) least = mean[at];
      if (mean[at] > greatest) greatest = mean[at];
    }
    few.iterations.push(iterations[Math.floor((start + end - 1) / 2)]);
    few.mean.push(sums.mean / (end - start));
    few.low.push(banded ? sums.low / (end - start) : least);
    few.high.push(banded ? sums.high / (end - start) : greatest);
  }
  return few;
}

/**
 * Centered moving average over about a tenth of the curve. At both ends, where the window would be cut, a straight line is fitted to the
 * outermost window: a slope does not bend there, and the last value does not attract the curve. Non-finite values are ignored.
 */
export function smooth(values: readonly number[]): number[] {
  const widest = Math.max(2, Math.round(values.length / 20));
  // Prefix sums: the mean of a window takes two look-ups. Rounding errors are kept beside them (Knuth's two-sum), or one value of 1e20
  // would erase all later ones.
  const sums = [0];
  const lost = [0];
  const counts = [0];
  values.forEach((found, at) => {
    const finite = Number.isFinite(found);
    const [before, value] = [sums[at], finite ? found : 0];
    const sum = before + value;
    const added = sum - before;
    sums.push(sum);
    lost.push(lost[at] + (before - (sum - added)) + (value - added));
    counts.push(counts[at] + (finite ? 1 : 0));
  });
  const reach = Math.min(widest, Math.floor((values.length - 1) / 2));
  const [first, last] = [
    lineThrough(values, 0, 2 * reach + 1),
    lineThrough(values, values.length - 2 * reach - 1, values.length),
  ];
  return values.map((_, at) => {
    if (at < reach) return first(at);
    if (at >= values.length - reach) return last(at);
    const [start, end] = [at - reach, at + reach + 1];
    return (sums[end] - sums[start] + (lost[end] - lost[start])) / (counts[end] - counts[start]);
  });
}

/**
 * The least-squares line through the finite values from `start` to before `end`. Clamped to their range, so that the line of a non-negative
 * series is never negative.
 */
function lineThrough(values: readonly number[], start: number, end: number): (at: number) => number {
  const places: number[] = [];
  for (let at = start; at < end; at++) if (Number.isFinite(values[at])) places.push(at);
  if (places.length === 0) return () => NaN;
  const mean = (read: (at: number) => number): number => places.reduce((sum, at) => sum + read(at) / places.length, 0);
  const center = mean((at) => at);
  const level = mean((at) => values[at]);
  const spread = mean((at) => (at - center) ** 2);
  const slope = spread === 0 ? 0 : mean((at) => (at - center) * (values[at] - level)) / spread;
  const found = places.map((at) => values[at]);
  const [least, greatest] = [Math.min(...found), Math.max(...found)];
  return (at) => Math.min(greatest, Math.max(least, level + slope * (at - center)));
}

const BARS = [...'▁▂▃▄▅▆▇█'];

/**
 * A curve as one line of text of at most `width` characters, scaled from its minimum to its maximum. Non-finite values are ignored. Empty
 * if there is no finite value.
 */
export function sparkline(values: readonly number[], width: number): string {
  const means = condense(finiteCurve(values, values), width).mean;
  const low = means.reduce((a, b) => Math.min(a, b), Infinity);
  const high = means.reduce((a, b) => Math.max(a, b), -Infinity);
  const level = (value: number): number =>
    high > low ? Math.min(BARS.length - 1, Math.floor(((value - low) / (high - low)) * BARS.length)) : 3;
  return means.map((value) => BARS[level(value)]).join('');
}
