/** Means with their standard errors: of paired differences, and as words. */
import { average, standardError } from './statistics.js';

/** A mean and its standard error, null if it is not known. */
export interface Estimate {
  readonly mean: number;
  readonly stderr: number | null;
}

/** The mean of paired differences, and how many there are; a single one has no error. */
export interface MeanDifference extends Estimate {
  readonly n: number;
}

/** A difference of fewer standard errors than this may be noise. */
export const CLEAR_ERRORS = 2;

/** Whether a difference is more than noise usually gives; `unknown` without an error. The one rule of pages and reports. */
export function significanceOf({ mean, stderr }: Estimate): 'clear' | 'noise' | 'unknown' {
  if (stderr === null || Number.isNaN(stderr)) return 'unknown';
  return mean === 0 || Math.abs(mean) < CLEAR_ERRORS * stderr ? 'noise' : 'clear';
}

/** Null of an empty list. */
export function meanDifference(differences: readonly number[]): MeanDifference | null {
  const n = differences.length;
  if (n === 0) return null;
  return { mean: average(differences), stderr: n < 2 ? null : standardError(differences), n };
}

/** An error that needs more decimals is 0 but for rounding, and is shown as such. */
const MAX_DIGITS = 8;

/** `4.020 ± 0.240`, with more digits if the error would be shown as 0; only the mean if its error is unknown, as of one value; a dash for NaN, the mean of nothing. */
export function showEstimate({ mean, stderr }: Estimate, digits = 3): string {
  if (Number.isNaN(mean)) return '–';
  if (stderr === null || Number.isNaN(stderr)) return mean.toFixed(digits);
  const isHidden = stderr >= 10 ** (1 - MAX_DIGITS) && Number(stderr.toFixed(digits)) === 0;
  const enough = isHidden ? Math.ceil(-Math.log10(stderr)) + 1 : digits;
  return `${mean.toFixed(enough)} ± ${stderr.toFixed(enough)}`;
}
