/** Means with standard errors: of paired differences, and as text. */
import { average, standardError } from './statistics.js';

/** A mean and its standard error, null if it is not known. */
export interface Estimate {
  readonly mean: number;
  readonly stderr: number | null;
}

/** The mean of `n` paired differences. A single difference has no error. */
export interface MeanDifference extends Estimate {
  readonly n: number;
}

/** A difference of fewer standard errors may be noise. */
export const CLEAR_ERRORS = 2;

/** Whether a difference exceeds noise. `unknown` without an error. Pages and reports use this rule. */
export function significanceOf({ mean, stderr }: Estimate): 'clear' | 'noise' | 'unknown' {
  if (stderr === null || Number.isNaN(stderr)) return 'unknown';
  return mean === 0 || Math.abs(mean) < CLEAR_ERRORS * stderr ? 'noise' : 'clear';
}

/** Null for an empty list. */
export function meanDifference(differences: readonly number[]): MeanDifference | null {
  const n = differences.length;
  if (n === 0) return null;
  return { mean: average(differences), stderr: n < 2 ? null : standardError(differences), n };
}

/** An error that needs more decimals is 0 except for rounding, and is shown as 0. */
const MAX_DIGITS = 8;

/** `4.020 ± 0.240`, with more digits if the error would be shown as 0. Shows only the mean if the error is unknown, and a dash for NaN. */
export function showEstimate({ mean, stderr }: Estimate, digits = 3): string {
  if (Number.isNaN(mean)) return '–';
  if (stderr === null || Number.isNaN(stderr)) return mean.toFixed(digits);
  const isHidden = stderr >= 10 ** (1 - MAX_DIGITS) && Number(stderr.toFixed(digits)) === 0;
  const enough = isHidden ? Math.ceil(-Math.log10(stderr)) + 1 : digits;
  return `${mean.toFixed(enough)} ± ${stderr.toFixed(enough)}`;
}
